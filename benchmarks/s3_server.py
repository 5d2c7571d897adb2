"""A bucket on this machine: moto's server, which speaks S3, in a process of its own. For checks, not for data.

pip install 'moto[server]' s3fs        # moto wants an older python-dateutil than envs/constraints.txt names
"""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

NEEDED = ("moto", "boto3", "flask_cors")


def lacking(*more: str) -> list[str]:
    """Packages of the server, or others, that are not installed."""
    return [name for name in (*NEEDED, *more) if importlib.util.find_spec(name) is None]


@contextlib.contextmanager
def bucket_server(bucket: str, log: Path) -> Iterator[dict[str, str]]:
    """Serve one empty bucket on 127.0.0.1 until the block ends.

    Yields:
        The environment with which programs find it: address, region, and credentials that the server does not check.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    environment = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "check",
        "AWS_SECRET_ACCESS_KEY": "check",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    command = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("w") as stream:
        server = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT)
        try:
            _wait_for(address, server, log)
            if bucket:
                client(environment).create_bucket(Bucket=bucket)
            yield environment
        finally:
            server.terminate()
            server.wait(timeout=30)


def client(environment: dict[str, str]):
    """boto3's client of the server."""
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_DEFAULT_REGION"],
    )


def keys(environment: dict[str, str], bucket: str) -> dict[str, int]:
    """Names and sizes in bytes of all objects in a bucket."""
    pages = client(environment).get_paginator("list_objects_v2").paginate(Bucket=bucket)
    return {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", [])}


def marks(environment: dict[str, str], bucket: str, prefix: str) -> dict[str, str]:
    """Names below a prefix, and the sum of each object's content."""
    listed = client(environment).list_objects_v2(Bucket=bucket, Prefix=prefix)
    return {entry["Key"]: entry["ETag"] for entry in listed.get("Contents", [])}


def _wait_for(address: str, server: subprocess.Popen, log: Path) -> None:
    for _ in range(600):
        if server.poll() is not None:
            sys.exit(f"moto's server ended at once: {log.read_text()[-2000:]}")
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{address}/moto-api/", timeout=5).close()
            return
        time.sleep(0.1)
    sys.exit(f"moto's server did not answer at {address} within a minute; see {log}")
