"""The sensors, each in a file of its own. A further one is added to this table, and to nothing else."""

from __future__ import annotations

from condor_joblens.tracer.sensors.basic import Basic, CloserSensor, NodeSensor
from condor_joblens.tracer.sensors.failing import Failing
from condor_joblens.tracer.sensors.io import Io
from condor_joblens.tracer.sensors.profile import Profile
from condor_joblens.tracer.sensors.recorder import Recorder, recorder_of
from condor_joblens.tracer.sensors.servers import REQUEST_SENSORS, FuseRequests, RequestSensor

SENSORS: tuple[type[CloserSensor], ...] = (Io, Profile, Recorder)
"""Those beside `basic`, from the lowest level to the closest."""

__all__ = [
    "REQUEST_SENSORS",
    "SENSORS",
    "Basic",
    "CloserSensor",
    "Failing",
    "FuseRequests",
    "Io",
    "NodeSensor",
    "Profile",
    "Recorder",
    "RequestSensor",
    "recorder_of",
]
