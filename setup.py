"""The shim that setuptools needs to build the cffi modules; everything else is in setup.cfg."""

from setuptools import setup

setup(
    cffi_modules=[
        "condor_joblens/shm/shm_build.py:ffi",
        "condor_joblens/sample/files_build.py:ffi",
        "condor_joblens/sample/merge_build.py:ffi",
        "condor_joblens/tracer/bpf_build.py:ffi",
        "condor_joblens/profiling/eh_frame_build.py:ffi",
        "condor_joblens/profiling/sample_ring_build.py:ffi",
    ],
    # all of them use the limited C API: one wheel serves every Python from 3.9 on
    options={"bdist_wheel": {"py_limited_api": "cp39"}},
)
