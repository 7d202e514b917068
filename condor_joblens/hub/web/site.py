"""Django's settings, as this program needs them: no file of settings, and nothing that a page does not use."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.management import call_command
from django.urls import path, re_path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from condor_joblens.hub.postgres import Postgres

urlpatterns: list[Any] = []
handler404 = "condor_joblens.hub.web.views.not_found"
"""Django looks for them in this module."""


def configure(folder: Path, hosts: list[str], is_secure: bool, database: Postgres | None = None) -> None:
    """Django, once a process.

    folder: where the key of sessions is, and they, if there is no database; is_secure: browsers come by https alone.
    """
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "web.sqlite3")}
    settings.configure(
        SECRET_KEY=_key(folder / "web.key"),
        ALLOWED_HOSTS=hosts,
        ROOT_URLCONF=__name__,
        DATABASES={"default": database.django() if database else sqlite},
        INSTALLED_APPS=["django.contrib.sessions"],
        MIDDLEWARE=[
            "condor_joblens.hub.web.middleware.headers",
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "condor_joblens.hub.web.middleware.viewer",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "DIRS": [str(Path(__file__).parent / "templates")],
                "OPTIONS": {"context_processors": ["django.template.context_processors.request"]},
            }
        ],
        USE_TZ=True,
        SESSION_COOKIE_AGE=12 * 3600,
        SESSION_COOKIE_SECURE=is_secure,
        SESSION_COOKIE_SAMESITE="Strict",
        CSRF_COOKIE_SECURE=is_secure,
        CSRF_COOKIE_SAMESITE="Strict",
        CSRF_USE_SESSIONS=False,
        DATA_UPLOAD_MAX_MEMORY_SIZE=64 << 10,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        LOGGING_CONFIG=None,
        APPEND_SLASH=False,
    )
    django.setup()
    if database is None:
        make_session_table()


def make_session_table() -> None:
    """As the role that is to own it, where there are roles."""
    call_command("migrate", verbosity=0, interactive=False)


def application(folder: Path, hosts: list[str], is_secure: bool, database: Postgres | None = None) -> Any:
    """The ASGI application."""
    configure(folder, hosts, is_secure, database)
    from condor_joblens.hub.web import (
        artifact_views,
        condor_views,
        entry_views,
        leak_views,
        node_views,
        oidc_views,
        queue_views,
        rule_views,
        scatter_views,
        server_views,
        trend_views,
        views,
    )
    from condor_joblens.hub.web.api.views import routes

    run, name = r"(?P<run>[^/]{1,300}?)", r"(?P<name>[^/]{1,300}?)"
    server = r"(?P<name>.{1,300}?)"  # of FUSE with slashes
    number, job = "(?P<number>[0-9]{1,12})", r"(?P<job>[^/]{1,300}?)"
    urlpatterns[:] = [
        path("", require_GET(views.SITE.page)),
        path("jobs", require_GET(views.JOBS.page)),
        re_path(f"^job/{run}/artifact/{number}\\.json$", require_GET(artifact_views.ARTIFACT.as_json)),
        re_path(f"^job/{run}/artifact/{number}\\.svg$", require_GET(artifact_views.picture)),
        re_path(f"^job/{run}/artifact/{number}$", require_GET(artifact_views.ARTIFACT.page)),
        re_path(f"^job/{run}\\.json$", require_GET(views.JOB.as_json)),
        re_path(f"^job/{run}$", require_GET(views.JOB.page)),
        re_path(f"^queued/{job}\\.json$", require_GET(queue_views.QUEUED.as_json)),
        re_path(f"^queued/{job}$", require_GET(queue_views.QUEUED.page)),
        re_path(f"^stream/queued/{job}$", require_GET(queue_views.QUEUED.stream)),
        path("nodes", require_GET(node_views.NODES.page)),
        re_path(f"^node/{name}\\.json$", require_GET(node_views.NODE.as_json)),
        re_path(f"^node/{name}$", require_GET(node_views.NODE.page)),
        path("nodes.json", require_GET(node_views.NODES.as_json)),
        path("site.json", require_GET(views.SITE.as_json)),
        path("jobs.json", require_GET(views.JOBS.as_json)),
        path("jobs.csv", require_GET(views.JOBS.as_csv)),
        path("jobs.parquet", require_GET(views.JOBS.as_parquet)),
        path("nodes.csv", require_GET(node_views.NODES.as_csv)),
        path("nodes.parquet", require_GET(node_views.NODES.as_parquet)),
        path("scatter", require_GET(scatter_views.SCATTER.page)),
        path("scatter.json", require_GET(scatter_views.SCATTER.as_json)),
        path("scatter.csv", require_GET(scatter_views.SCATTER.as_csv)),
        path("stream/scatter", require_GET(scatter_views.SCATTER.stream)),
        path("trends", require_GET(trend_views.TRENDS.page)),
        path("trends.json", require_GET(trend_views.TRENDS.as_json)),
        path("trends.csv", require_GET(trend_views.TRENDS.as_csv)),
        path("trends.parquet", require_GET(trend_views.TRENDS.as_parquet)),
        path("stream/trends", require_GET(trend_views.TRENDS.stream)),
        path("stream/", require_GET(views.SITE.stream)),
        path("stream/jobs", require_GET(views.JOBS.stream)),
        re_path(f"^stream/job/{run}$", require_GET(views.JOB.stream)),
        path("stream/nodes", require_GET(node_views.NODES.stream)),
        re_path(f"^stream/node/{name}$", require_GET(node_views.NODE.stream)),
        path("leaks", require_GET(leak_views.LEAKS.page)),
        path("leaks.json", require_GET(leak_views.LEAKS.as_json)),
        path("leaks.csv", require_GET(leak_views.LEAKS.as_csv)),
        path("leaks.parquet", require_GET(leak_views.LEAKS.as_parquet)),
        path("stream/leaks", require_GET(leak_views.LEAKS.stream)),
        path("servers", require_GET(server_views.SERVERS.page)),
        path("servers.json", require_GET(server_views.SERVERS.as_json)),
        path("servers.csv", require_GET(server_views.SERVERS.as_csv)),
        path("servers.parquet", require_GET(server_views.SERVERS.as_parquet)),
        re_path(f"^servers/{server}\\.json$", require_GET(server_views.SERVER.as_json)),
        re_path(f"^servers/{server}$", require_GET(server_views.SERVER.page)),
        path("stream/servers", require_GET(server_views.SERVERS.stream)),
        re_path(f"^stream/servers/{server}$", require_GET(server_views.SERVER.stream)),
        path("entries", require_GET(entry_views.page)),
        path("entries.json", require_GET(entry_views.as_json)),
        path("entries/preview", require_POST(entry_views.preview)),
        path("entries/add", require_POST(entry_views.add)),
        path("entries/end", require_POST(entry_views.end)),
        path("rules", require_GET(rule_views.RULES.page)),
        path("rules.json", require_GET(rule_views.RULES.as_json)),
        path("stream/rules", require_GET(rule_views.RULES.stream)),
        *routes(),
        path("alive", require_GET(views.alive)),
        path("login", require_http_methods(["GET", "POST"])(views.login)),
        path("login/condor", csrf_exempt(require_POST(condor_views.log_in))),
        path("login/oidc", require_GET(oidc_views.begin)),
        path("login/oidc/answer", require_GET(oidc_views.finish)),
        path("logout", require_http_methods(["POST"])(views.logout)),
        path("favicon.ico", require_GET(views.static), {"name": "icon.svg"}),  # asked for beside what is no page
        path("static/<str:name>", require_GET(views.static)),
    ]
    return get_asgi_application()


def _key(file: Path) -> str:
    """Signs sessions; made once."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return file.read_text()
    with open(descriptor, "w", encoding="ascii") as opened:
        opened.write(secrets.token_urlsafe(50))
    return file.read_text()
