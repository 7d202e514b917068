"""A sink of its own package: the ends of jobs go to the machine's system log."""

import socket

from condor_joblens.sinks import DELIVERED, DeliveryResult, Diagnosis, RecordKind, Sink, SinkKnob

USER_NOTICE = 13  # facility user, severity notice


class SyslogSink(Sink):
    """A record is delivered once the log's socket has taken it."""

    name = "syslog"
    takes = frozenset({RecordKind.JOB})
    knobs = (SinkKnob("SOCKET", "/dev/log", str, "file", "the socket of the system's logger"),)

    def start(self) -> None:
        """Connects; what this raises is logged, and it is called again later."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(5)
        self._socket.connect(self.settings["socket"])

    def deliver(self, batch) -> DeliveryResult:
        """One line a job."""
        for position, record in enumerate(batch):
            job = record.fields()
            line = f"<{USER_NOTICE}>joblens: {job['Run']} used {job.get('Cpu', {}).get('Seconds', 0)} s of CPU"
            try:
                self._socket.send(line.encode())
            except OSError as error:
                self.start()  # the logger may have been started anew
                return DeliveryResult(range(position, len(batch)), reason=str(error))
        return DELIVERED

    def check(self):
        """For `joblens doctor`."""
        try:
            self.start()
        except OSError as error:
            path = self.settings["socket"]
            return [Diagnosis(False, f"{path}: {error.strerror}", "start the system's logger, or set ..._SOCKET")]
        return [Diagnosis(True, f"writes to {self.settings['socket']}")]

    def close(self, seconds: float) -> None:
        """Nothing waits here."""
