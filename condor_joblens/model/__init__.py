"""The words of every room: levels, metrics, events, classes and endpoints. It imports nothing of the other rooms."""
