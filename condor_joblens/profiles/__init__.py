"""Profiles with names: what is kept of one, and how it is shown. Nothing here knows how samples are taken.

- profile: counted stacks of a time, and how they are put together
- protobuf, pprof: the format in which they are kept and handed out
- segment: a profile with what joblensd itself is told of it
- text: names of strangers as they may be shown
- hottest: which functions, lines and files take most
- tree, flame_graph: the picture, one SVG file with its script
- folded, speedscope: what other programs read
"""
