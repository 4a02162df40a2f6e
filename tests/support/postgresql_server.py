"""A real PostgreSQL on loopback, in a folder of its own, with TLS and a few jobs."""

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
import trustme

from hpad.lab.servers import ports

ABSENT = "PostgreSQL is missing: install Debian's package postgresql"
ADMIN, READER, DATABASE = "admin", "reader", "shop"
PASSWORD = "s3cr3t pa55"
_SECONDS = 120.0
_TABLE = """
CREATE TABLE jobs (queue text, state text, priority int, weight numeric);
INSERT INTO jobs SELECT 'mail', 'new', n % 2, 1.5 FROM generate_series(1, 8) AS n;
INSERT INTO jobs SELECT 'mail', 'done', 1, 1 FROM generate_series(1, 2);
INSERT INTO jobs VALUES ('web', 'new', 1, NULL);
CREATE SEQUENCE counted;
"""


def programs() -> Path | None:
    """Returns the folder of the newest installed version, None if there is none."""
    found = shutil.which("initdb")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda each: int(each.parts[-3]))
    return Path(found).parent if found else folders[-1].parent if folders else None


class Server:
    """The server, which ends with `stop`. It demands passwords (SCRAM), also without TLS."""

    def __init__(self) -> None:
        (self.port,) = ports.free(1)
        self.folder = Path(tempfile.mkdtemp(prefix="hpad-postgresql-"))
        self.ca = self.folder / "ca.pem"
        self.authority = trustme.CA()
        self._user = _other_user()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Makes the database, starts the server, and waits for it."""
        programs_ = programs()
        assert programs_ is not None
        (self.folder / "password").write_text(PASSWORD)
        self._own(self.folder, self.folder / "password")
        data = self.folder / "data"
        initdb = [programs_ / "initdb", "--pgdata", data, "--username", ADMIN, "--pwfile", self.folder / "password"]
        self._run([*initdb, "--auth=scram-sha-256", "--no-sync", "--locale=C", "--encoding=UTF8"])
        self.authority.cert_pem.write_to_path(self.ca)
        issued = self.authority.issue_cert("localhost")
        issued.private_key_and_cert_chain_pem.write_to_path(data / "server.pem")
        self._own(data / "server.pem")
        options = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "ssl": "on",
            "ssl_cert_file": "server.pem",
            "ssl_key_file": "server.pem",
            "fsync": "off",
            "shared_buffers": "16MB",
            "max_connections": 20,
        }
        with (data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in options.items())
        with (self.folder / "log").open("wb") as log:
            command = [programs_ / "postgres", "-D", data]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._user)
        asyncio.run(self._fill())

    def stop(self) -> None:
        """Ends the server (with SIGQUIT: at once, with its children) and removes its folder."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
        shutil.rmtree(self.folder)

    async def execute(self, statements: str, database: str = DATABASE) -> None:
        """Executes statements as the administrator."""
        connection = await self._connect(database)
        try:
            await connection.execute(statements)
        finally:
            await connection.close()

    async def value(self, query: str) -> Any:
        """Returns the first value of a query as the administrator."""
        connection = await self._connect(DATABASE)
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    async def _fill(self) -> None:
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                await self.execute(f"CREATE DATABASE {DATABASE}", "postgres")
                break
            except (OSError, asyncpg.CannotConnectNowError):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
        await self.execute(_TABLE)
        await self.execute(f"CREATE ROLE {READER} LOGIN PASSWORD '{PASSWORD}'; GRANT SELECT ON jobs TO {READER}")
        await self.execute(f"GRANT ALL ON counted TO {READER}; CREATE TABLE secrets (n int)")

    async def _connect(self, database: str) -> Any:
        return await asyncpg.connect(
            host="127.0.0.1", port=self.port, user=ADMIN, password=PASSWORD, database=database, ssl=False
        )

    def _run(self, command: Sequence[object]) -> None:
        subprocess.run([str(part) for part in command], check=True, capture_output=True, **self._user)

    def _own(self, *paths: Path) -> None:
        for path in paths:
            path.chmod(0o700)
            if self._user:
                shutil.chown(path, **self._user)


def _other_user() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: names another user and its group."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid}
