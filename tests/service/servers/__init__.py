"""The real servers of this layer, as objects: started when a test needs one, killed and frozen as it likes.

    with Kafka(folder) as kafka:
        kafka.kill(); kafka.start()

They listen on free ports of 127.0.0.1 of the network namespace in which they are started, and die with the tests.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, TextIO, TypeVar

HERE = Path(__file__).resolve().parent
SECONDS = 300
"""How long a server may take to be ready on a busy machine."""

Self = TypeVar("Self", bound="Server")


class Unavailable(Exception):
    """This server can't be had on this machine; the text says why."""


SERVERS_FROM = 10_000
"""The lowest port that a server gets."""

TAKEN = Path("/tmp/joblens-test-ports")
"""A file for each port, which is locked by the process of the tests that has chosen it."""


@functools.cache
def fetched(server: str) -> Path:
    """The folder of a server's files, fetched where it is not in the cache. Raises Unavailable."""
    done = subprocess.run([HERE / "fetch", server], capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise Unavailable((done.stderr.strip().splitlines() or ["fetch ended without a word"])[-1])
    return Path(done.stdout.strip())


def unpacked(package: str) -> Path:
    """The folder of a Debian package's files, which is not installed. Raises Unavailable."""
    done = subprocess.run([HERE / "unpack", package], capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise Unavailable((done.stderr.strip().splitlines() or ["unpack ended without a word"])[-1])
    return Path(done.stdout.strip())


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has now, and that the kernel gives to no client while its server is down.

    It stays this process's own: others that test beside it get none that is taken, before its server listens.
    Where a condor_master runs, clients may have any port: it makes the kernel's range larger.
    """
    first_of_clients = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    end = first_of_clients if first_of_clients > SERVERS_FROM else 32_768
    TAKEN.mkdir(exist_ok=True)
    while True:
        port = random.randrange(SERVERS_FROM, end)
        lock = open(TAKEN / str(port), "w")  # noqa: SIM115  # until this process ends
        with socket.socket() as listener, contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            listener.bind(("127.0.0.1", port))
            _locks.append(lock)
            return port
        lock.close()


_locks: list[TextIO] = []


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate for localhost and 127.0.0.1 (or a client's), and its key."""
    folder.mkdir(parents=True, exist_ok=True)
    public, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", public],
        check=True, capture_output=True,
    )  # fmt: skip
    return public, key


class Server:
    """One server: its process, its folder, its log."""

    name = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.files = self.fetch()

    def fetch(self) -> Path:
        """The folder of its files. Raises Unavailable."""
        return fetched(self.name)

    def __enter__(self: Self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Starts it and waits until it answers."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self.as_user(), *self.command()],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                env={**os.environ, **self.environment()},
            )
        end = time.monotonic() + SECONDS
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > end:
                said = self.log.read_text(errors="replace")[-2000:]
                self.stop()
                raise AssertionError(f"{type(self).__name__} did not start:\n{said}")
            time.sleep(0.1)

    def command(self) -> list[str]:
        raise NotImplementedError

    def answers(self) -> bool:
        raise NotImplementedError

    def as_user(self) -> list[str]:
        return []

    def environment(self) -> dict[str, str]:
        return {}

    def kill(self) -> None:
        """As a crash does: nothing is written any more."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """In order; a server that does not want to is killed."""
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """It neither answers nor closes its connections, as a machine does whose disk hangs."""
        assert self.process
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on where it was frozen."""
        assert self.process
        self.process.send_signal(signal.SIGCONT)

    def _end(self, number: int) -> None:
        if self.process is None:
            return
        self.process.send_signal(number)
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


_LITTLE_JAVA = ["java", "-Xms64m", "-XX:+UseSerialGC", "-XX:MaxDirectMemorySize=64m", "-XX:TieredStopAtLevel=1"]


class Kafka(Server):
    """A broker: plain at `plain`, SASL over TLS at `sasl` (alice and carol by PLAIN, bob by SCRAM; each has
    his name and -secret for a password), TLS for those alone who show the certificate `client` at `mutual`.

    Topics are made by those who ask for it alone; carol may not ask.
    """

    name = "kafka"

    def __init__(self, folder: Path, **properties: str) -> None:
        super().__init__(folder)
        ports = {name: str(free_port()) for name in ("PLAIN", "SASL", "MUTUAL", "CONTROLLER")}
        self.plain, self.sasl, self.mutual = (f"127.0.0.1:{ports[name]}" for name in ("PLAIN", "SASL", "MUTUAL"))
        self.authority, key = certificate(folder / "tls", "localhost")
        self.client = certificate(folder / "tls", "joblens")
        (folder / "tls" / "broker.pem").write_bytes(key.read_bytes() + self.authority.read_bytes())
        text = (HERE / "broker.properties.in").read_text()
        for name, value in {"FOLDER": str(folder), **ports}.items():
            text = text.replace(f"@{name}@", value)
        text += "".join(f"{name.replace('_', '.')}={value}\n" for name, value in properties.items())
        (folder / "broker.properties").write_text(text)

    def _java(self, *arguments: str) -> list[str]:
        log = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true"]
        return [*_LITTLE_JAVA, "-Xmx256m", *log, "-cp", f"{self.files}/*", *arguments]

    def start(self) -> None:
        if not (self.folder / "data/meta.properties").exists():
            scram = [f"--add-scram=SCRAM-SHA-{bits}=[name=bob,password=bob-secret]" for bits in (256, 512)]
            format = self._java("kafka.tools.StorageTool", "format", "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qk")
            subprocess.run(
                [*format, "--config", str(self.folder / "broker.properties"), *scram], check=True, capture_output=True
            )
        super().start()

    def command(self) -> list[str]:
        return self._java("kafka.Kafka", str(self.folder / "broker.properties"))

    def answers(self) -> bool:
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError

        try:
            admin = KafkaAdminClient(bootstrap_servers=self.plain, bootstrap_timeout_ms=1000)
        except (KafkaError, OSError):
            return False
        try:
            return bool(admin.describe_cluster()["brokers"])
        except (KafkaError, OSError, KeyError):
            return False
        finally:
            admin.close()


class OpenSearch(Server):
    """One node of OpenSearch at `url`."""

    name = "opensearch"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port, self.transport = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        program = [str(HERE / "OpenSearch.java"), str(self.folder / "node"), str(self.port), str(self.transport)]
        return [*_LITTLE_JAVA, "-Xmx256m", "-cp", f"{self.files}/*", *program]

    def answers(self) -> bool:
        return _answers(f"{self.url}/_cluster/health?wait_for_status=yellow")


class Elasticsearch(OpenSearch):
    """One node of Elasticsearch at `url`. It does not run as root."""

    name = "elasticsearch"
    USER = 65534

    def command(self) -> list[str]:
        config = self.folder / "config"
        shutil.rmtree(config, ignore_errors=True)
        shutil.copytree(self.files / "config", config)
        (config / "elasticsearch.yml").write_text(
            f"path.data: {self.folder}/data\npath.logs: {self.folder}/logs\nnetwork.host: 127.0.0.1\n"
            f"http.port: {self.port}\ntransport.port: {self.transport}\ndiscovery.type: single-node\n"
            "xpack.security.enabled: false\n"
            "cluster.routing.allocation.disk.threshold_enabled: false\n"
        )
        (self.folder / "tmp").mkdir(exist_ok=True)
        for path in (self.folder, *self.folder.rglob("*")):
            if path != self.log:
                os.chown(path, self.USER, self.USER)
        return [str(self.files / "bin/elasticsearch")]

    def as_user(self) -> list[str]:
        return [f"--reuid={self.USER}", f"--regid={self.USER}", "--clear-groups"] if os.getuid() == 0 else []

    def environment(self) -> dict[str, str]:
        java = Path(shutil.which("java") or "java").resolve().parents[1]
        return {
            "ES_PATH_CONF": str(self.folder / "config"),
            "ES_JAVA_HOME": str(java),
            "ES_TMPDIR": str(self.folder / "tmp"),
            "ES_JAVA_OPTS": "-Xms256m -Xmx256m -XX:TieredStopAtLevel=1",
            "HOME": str(self.folder),
        }


class Collector(Server):
    """The OpenTelemetry collector: takes OTLP over HTTP at `url`, and hands on what it took to OTLP at `onward`.

    tls: the settings of its TLS, e.g. cert_file=...
    """

    name = "collector"

    def __init__(self, folder: Path, onward: str, **tls: Path) -> None:
        super().__init__(folder)
        self.port = free_port()
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        secured = ", ".join(f'{name}: "{path}"' for name, path in tls.items())
        http = f'endpoint: "127.0.0.1:{self.port}"' + (f", tls: {{{secured}}}" if tls else "")
        (folder / "config.yaml").write_text(
            f"""receivers: {{otlp: {{protocols: {{http: {{{http}}}}}}}}}
exporters:
  otlphttp: {{endpoint: "{onward}", compression: none, sending_queue: {{enabled: false}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    metrics: {{receivers: [otlp], exporters: [otlphttp]}}
    logs: {{receivers: [otlp], exporters: [otlphttp]}}
"""
        )

    def command(self) -> list[str]:
        return [str(self.files / "collector"), f"--config=file:{self.folder}/config.yaml"]

    def answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


class Prometheus(Server):
    """A Prometheus at `url` that scrapes `targets` every second in the scrape job `job`, with these rules."""

    name = "prometheus"

    def __init__(
        self, folder: Path, *targets: str, rules: tuple[Path, ...] = (), job: str = "joblens", **scrape: Any
    ) -> None:
        super().__init__(folder)
        self.port = free_port()
        quoted = ", ".join(f'"{target}"' for target in targets)
        self.url = f"http://127.0.0.1:{self.port}"
        options = "".join(f"\n    {name}: {value}" for name, value in scrape.items())
        (folder / "prometheus.yml").write_text(
            f"""global: {{scrape_interval: 1s, evaluation_interval: 1s, scrape_timeout: 1s}}
rule_files: [{", ".join(map(str, rules))}]
scrape_configs:
  - job_name: {job}
    static_configs: [{{targets: [{quoted}]}}]{options}
"""
        )

    def command(self) -> list[str]:
        return [
            str(self.files / "prometheus"),
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        ]

    def answers(self) -> bool:
        return _answers(f"{self.url}/-/ready")


class OidcProvider(Server):
    """npm's oidc-provider at `issuer`, for one client. Who logs in there types a name, which is his `sub`.

    For browsers, localhost is another site than 127.0.0.1.
    """

    name = "oidc_provider"

    def __init__(self, folder: Path, client: str, secret: str, redirect: str) -> None:
        super().__init__(folder)
        self.port = free_port()
        self.issuer = f"http://localhost:{self.port}"
        given = {"port": self.port, "issuer": self.issuer, "client": client, "secret": secret, "redirect": redirect}
        (folder / "settings.json").write_text(json.dumps(given))

    def command(self) -> list[str]:
        return ["node", str(self.files / "oidc_provider.mjs"), str(self.folder / "settings.json")]

    def answers(self) -> bool:
        return _answers(f"{self.issuer}/.well-known/openid-configuration")


class Postgres(Server):
    """Debian's PostgreSQL with an empty database `joblens` at 127.0.0.1, of the role `owner`, and a role `hub`."""

    USER = 65534
    """It does not run as root."""

    PASSWORDS: ClassVar = {"postgres": "eel", "owner": "carp", "hub": "perch"}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = free_port()
        for role, password in self.PASSWORDS.items():
            (folder / role).write_text(password + "\n")
            (folder / role).chmod(0o644)
        (folder / "data").mkdir()
        if os.getuid() == 0:
            os.chown(folder / "data", self.USER, self.USER)
        first = ["-U", "postgres", "-A", "scram-sha-256", f"--pwfile={folder}/postgres", "--no-sync", "-E", "UTF8"]
        self._run("initdb", "-D", f"{folder}/data", "--locale=C", *first)

    def fetch(self) -> Path:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
        if not found:
            raise Unavailable("the Debian package postgresql is missing: make test-env installs it")
        return found[-1].parent

    def start(self) -> None:
        is_new = not self.log.exists()
        super().start()
        if is_new:
            self.query("CREATE ROLE owner LOGIN PASSWORD 'carp'", "CREATE ROLE hub LOGIN PASSWORD 'perch'")
            self.query("CREATE DATABASE joblens OWNER owner")

    def command(self) -> list[str]:
        options = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": "", "fsync": "off"}
        return [
            str(self.files / "postgres"),
            *("-D", f"{self.folder}/data"),
            *(part for name, value in options.items() for part in ("-c", f"{name}={value}")),
        ]

    def answers(self) -> bool:
        import psycopg

        try:
            self.query("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def as_user(self) -> list[str]:
        return [f"--reuid={self.USER}", f"--regid={self.USER}", "--clear-groups"] if os.getuid() == 0 else []

    def address(self, role: str, database: str = "joblens") -> str:
        """Without its password, which is in the file `role`."""
        return f"postgresql://{role}@127.0.0.1:{self.port}/{database}"

    def query(self, *statements: str, role: str = "postgres", database: str = "postgres") -> list[tuple[Any, ...]]:
        """One after the other; rows of the last."""
        import psycopg

        with psycopg.connect(
            self.address(role, database), password=self.PASSWORDS[role], autocommit=True, connect_timeout=10
        ) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def _run(self, *command: str) -> None:
        program, *arguments = command
        subprocess.run(
            ["setpriv", *self.as_user(), str(self.files / program), *arguments],
            check=True, capture_output=True, cwd=self.folder,
        )  # fmt: skip


class Nginx(Server):
    """nginx at a port of 127.0.0.1, with these lines in its block `http`."""

    USER = "www-data"
    """As whom it connects to what is behind it."""

    def __init__(self, folder: Path, port: int, lines: str, connections: int = 512) -> None:
        """`connections` are those of its one worker, on both sides."""
        if os.geteuid() != 0:
            raise Unavailable("only root can start it as another user")
        super().__init__(folder)
        self.port = port
        parts = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        folders = "".join(f"{part}_temp_path {folder}/{part};\n" for part in parts)
        (folder / "nginx.conf").write_text(
            f"user {self.USER};\npid {folder}/nginx.pid;\nerror_log stderr;\ndaemon off;\n"
            f"worker_rlimit_nofile {connections + 100};\nevents {{ worker_connections {connections}; }}\n"
            f"http {{\naccess_log off;\n{folders}{lines}}}\n"
        )

    def fetch(self) -> Path:
        return unpacked("nginx")

    def command(self) -> list[str]:
        return [str(self.files / "usr/sbin/nginx"), "-c", str(self.folder / "nginx.conf"), "-e", "stderr"]

    def answers(self) -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) == 0
