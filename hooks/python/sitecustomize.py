"""Brings what traces into a Python of a job that asks for it: the job's wrapper puts this folder into PYTHONPATH.

The folder is out of sys.path again before anything else is imported, and nothing of it is in sys.modules. Python then
has the sitecustomize that it would have had, with whatever that raises, or none. It is read by Python 2 as well.
"""

import sys


def _bring_in(folder, name):
    if "t" in sys.abiflags or "d" in sys.abiflags or object.__basicsize__ != 2 * tuple.__itemsize__:
        return  # objects have another layout there
    if sys.implementation.name != "cpython":
        return
    import _imp

    spec = sys.modules["_frozen_importlib"].ModuleSpec(name, None, origin=folder + "/" + name + ".so")
    _imp.exec_dynamic(_imp.create_dynamic(spec))


_folder = __file__.rpartition("/")[0]
sys.path[:] = [_each for _each in sys.path if _each != _folder]
sys.path_importer_cache.pop(_folder, None)
for _each in ("joblens_python", "joblens_calls"):  # the second one is not in each folder
    try:  # noqa: SIM105
        _bring_in(_folder, _each)
    except Exception:
        pass  # another Python, another C library: it is not traced, and the job goes on
del sys.modules["sitecustomize"]
import sitecustomize  # noqa: E402, F401  # the job's own; there may be none, and Python knows what to do then
