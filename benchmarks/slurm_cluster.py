"""A Slurm of two nodes on this machine, out of Debian's packages, for as long as a block lasts.

Each node has two GPUs in name only (plain device files), so that jobs are queued and masked as on a real cluster. All
files, ports, keys and processes are its own; a Slurm that runs here already is left alone.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path

import psutil

from rewind.errors import RewindError

PACKAGES = ("slurm-wlm", "munge", "slurmdbd", "mariadb-server")
PROGRAMS = ("munged", "mariadbd", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd", "sbatch", "sacct", "srun")
NODES = ("n1", "n2")
GPUS, CORES, MEMORY = 2, 4, 12_000  # of a node; memory in MB

CONF = """\
ClusterName=check
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={folder}/prolog
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
MpiDefault=none
ReturnToService=2
MailProg=/bin/true
SlurmdParameters=config_overrides
GresTypes=gpu
{accounting}
{nodes}
PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""
ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd}
AccountingStoragePass={folder}/munge.socket
AccountingStoreFlags=job_comment
AccountingStorageTRES=gres/gpu
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=5
JobAcctGatherParams=OverMemoryKill"""
DBD = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={dbd}
SlurmUser=root
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm_acct_db
"""
SETUP = """\
CREATE DATABASE slurm_acct_db;
CREATE USER 'slurm'@'127.0.0.1' IDENTIFIED BY '{password}';
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'127.0.0.1';
"""


def lacking() -> str:
    """Why no Slurm can be set up here, in a sentence; empty where one can be."""
    if os.geteuid() != 0:
        return "it must be started as root, since Slurm's daemons start jobs for users"
    for process in psutil.process_iter(["name", "pid"]):
        if process.info["name"] in ("slurmctld", "slurmd", "slurmdbd"):
            return (
                f"a Slurm runs here already ({process.info['name']}, process {process.info['pid']}): it is left alone"
            )
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"{', '.join(missing)} not found; on Debian or Ubuntu: apt-get install {' '.join(PACKAGES)}"
    return ""


def install() -> None:
    """Install Debian's packages where they are not there.

    Raises:
        RewindError: if they cannot be.
    """
    if all(shutil.which(name) for name in PROGRAMS):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise RewindError(f"Slurm is not installed, and only root with apt-get can do that: {' '.join(PACKAGES)}.")
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *PACKAGES]):
        if subprocess.run(["apt-get", *words], env=env, stdout=subprocess.DEVNULL).returncode:
            raise RewindError(f"apt-get {' '.join(words)} failed; its last lines stand above.")


class Cluster:
    """Two nodes, up inside the block and gone behind it, however the block ends.

    Attributes:
        env: environment in which ``sbatch``, ``sacct`` and others talk to this cluster.
    """

    def __init__(self, folder: Path, accounting: bool = True) -> None:
        self.folder, self.accounting = folder, accounting
        self.password = secrets.token_hex(16)
        self.ports = dict(zip(("ctld", "dbd", "database", *NODES), _free(3 + len(NODES)), strict=True))
        own = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        self.env = os.environ | own
        self.daemons: list[subprocess.Popen] = []

    def __enter__(self) -> Cluster:
        if reason := lacking():
            raise RewindError(f"no Slurm can be set up here: {reason}.")
        try:
            self._files()
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def ask(self, *command: str) -> str:
        """What a command of Slurm's prints.

        Raises:
            RewindError: if it fails.
        """
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RewindError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout.strip()

    def _files(self) -> None:
        folder = self.folder
        folder.mkdir(mode=0o755, parents=True)
        for name in ("state", *(f"spool-{node}" for node in NODES), "database", "devices", "bin"):
            (folder / name).mkdir(mode=0o755)
        (folder / "munge.key").write_bytes(secrets.token_bytes(128))
        (folder / "munge.key").chmod(0o400)
        lines, gres = [], []
        for number, node in enumerate(NODES):
            files = [folder / "devices" / f"gpu{number * GPUS + at}" for at in range(GPUS)]
            for file in files:
                _device(file)
                gres.append(f"NodeName={node} Name=gpu File={file}")
            lines.append(
                f"NodeName={node} NodeAddr=127.0.0.1 NodeHostname={socket.gethostname()} Port={self.ports[node]} "
                f"CPUs={CORES} RealMemory={MEMORY} Gres=gpu:{GPUS} State=UNKNOWN"
            )
        text = CONF.format(
            folder=folder,
            host=socket.gethostname(),
            accounting=ACCOUNTING.format(folder=folder, **self.ports)
            if self.accounting
            else "AccountingStorageType=accounting_storage/none",
            nodes="\n".join(lines),
            names=",".join(NODES),
            **self.ports,
        )
        (folder / "slurm.conf").write_text(text)
        # Two machines have two folders for temporary files, and in these the locks of their GPUs.
        prolog = folder / "prolog"
        own = f"{folder}/tmp-$SLURMD_NODENAME"
        prolog.write_text(f"#!/bin/sh\nmkdir -p {own}\necho export TMPDIR={own}\n")
        prolog.chmod(0o755)
        # The plugin starts srun without SLURM_CONF, and a configuration in /etc would not be ours alone.
        srun = folder / "bin" / "srun"
        srun.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which("srun")} "$@"\n')
        srun.chmod(0o755)
        (folder / "gres.conf").write_text("\n".join(gres) + "\n")
        (folder / "slurmdbd.conf").write_text(
            DBD.format(folder=folder, host=socket.gethostname(), password=self.password, **self.ports)
        )
        (folder / "slurmdbd.conf").chmod(0o600)

    def _start(self) -> None:
        folder = self.folder
        munge = ("--key-file", "munge.key", "--socket", "munge.socket", "--pid-file", "munge.pid")
        munge += ("--log-file", "munge.log", "--seed-file", "munge.seed")
        paths = [str(folder / word) if "." in word else word for word in munge]
        # --force: the folder of a check belongs to whoever runs it, not to a user called munge.
        self._daemon("munged", "--foreground", "--force", *paths)
        self._until(lambda: (folder / "munge.socket").exists(), "munged")
        if self.accounting:
            self._database()
            self._daemon("slurmdbd", "-D")
            self._until(lambda: _listens(self.ports["dbd"]), "slurmdbd")
            self.ask("sacctmgr", "-i", "add", "cluster", "check")
        self._daemon("slurmctld", "-D")
        for node in NODES:
            self._daemon("slurmd", "-D", "-N", node)
        self._until(lambda: self._idle(), "the nodes")

    def _idle(self) -> bool:
        done = subprocess.run(["sinfo", "-h", "-N", "-o", "%T"], env=self.env, capture_output=True, text=True)
        return done.stdout.split() == ["idle"] * len(NODES)

    def _database(self) -> None:
        data = f"--datadir={self.folder / 'database'}"
        words = ["--no-defaults", "--user=root", data, "--auth-root-authentication-method=normal", "--skip-test-db"]
        with (self.folder / "database.log").open("a") as log:
            subprocess.run(["mariadb-install-db", *words], check=True, stdout=log, stderr=log)
        setup = self.folder / "setup.sql"
        setup.touch(mode=0o600)
        setup.write_text(SETUP.format(password=self.password))
        port = self.ports["database"]
        own = [f"--socket={self.folder}/database.socket", f"--pid-file={self.folder}/database.pid"]
        sizes = ["--innodb-buffer-pool-size=256M", "--innodb-lock-wait-timeout=900"]
        self._daemon(
            *("mariadbd", "--no-defaults", "--user=root", data, f"--port={port}", "--bind-address=127.0.0.1"),
            *(*own, *sizes, f"--init-file={setup}", "--skip-name-resolve"),
        )
        self._until(lambda: _listens(port), "mariadbd")

    def _daemon(self, *command: str) -> None:
        """In a session of its own: Ctrl-C ends this program first, which then ends its daemons in order."""
        name = command[0] + (f"-{command[-1]}" if command[0] == "slurmd" else "")
        with (self.folder / f"{name}.out").open("w") as out:
            self.daemons.append(subprocess.Popen(command, env=self.env, stdout=out, stderr=out, start_new_session=True))

    def _until(self, ready, what: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not ready():
            dead = next((d for d in self.daemons if d.poll() is not None), None)
            if dead is not None or time.monotonic() > end:
                logs = sorted(self.folder.glob("*.out")) + sorted(self.folder.glob("*.log"))
                texts = [f"{p.name}: {p.read_text(errors='replace')[-600:]}" for p in logs if p.stat().st_size]
                why = f"{dead.args[0]} ended" if dead else f"waited {seconds:.0f} s"
                raise RewindError(f"{what} did not come up ({why}).\n" + "\n".join(texts))
            time.sleep(0.3)

    def stop(self) -> None:
        """End the jobs, the daemons, and what either left behind: only processes of this cluster."""
        if any(d.args[0] == "slurmctld" and d.poll() is None for d in self.daemons):
            subprocess.run(["scancel", "--user", "root"], env=self.env, capture_output=True)
            self._quiet(20)
        for daemon in reversed(self.daemons):
            if daemon.poll() is None:
                daemon.terminate()
                try:
                    daemon.wait(20)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()
        for process in self.left():
            process.send_signal(signal.SIGKILL)
        self.daemons.clear()

    def _quiet(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            done = subprocess.run(["squeue", "-h"], env=self.env, capture_output=True, text=True)
            if done.returncode or not done.stdout.strip():
                return
            time.sleep(0.5)

    def left(self) -> list[psutil.Process]:
        """Processes that the daemons or jobs of this cluster started, by the configuration in their environment."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("SLURM_CONF") == self.env["SLURM_CONF"]:
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found


def _device(file: Path) -> None:
    """What Slurm takes for a GPU: a device file, here another name of ``/dev/null``."""
    try:
        os.mknod(file, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except OSError as error:
        raise RewindError(
            f"no device file can be made in {file.parent} ({error.strerror}): a container needs the capability MKNOD "
            "for Slurm's GPUs."
        ) from None


def _free(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
