"""Lets a job of the workflow wait at a moment of its work, so that it can be killed just there.

Python imports a module of this name before anything else, if the folder is on ``PYTHONPATH``; the library knows nothing
of it. Where ``MOMENTS`` names a folder, every job writes the moments that it passes to ``passed`` there. At one that
``plan.json`` holds for it, it writes ``reached.json`` and waits for its end. Moments are ``beginning`` and ``end`` of
the job, ``before output 2`` and ``after output 2`` (its second output gets its name), and ``other 5`` (the fifth of
other files in the checkout, such as a training state, has got its name). What is computed stays the same.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
from importlib.machinery import PathFinder

FRAME = "rewind.workflow.job"  # every script does its job inside of its ``start_job``
LINK = os.link


class Job:
    """A job at work in this process."""

    def __init__(self, folder, given):
        self.folder, self.rule, self.name = folder, given.rule, given.output[0]
        self.outputs = [os.path.abspath(path) for path in given.output]
        self.home = os.getcwd() + os.sep
        self.logs = os.path.dirname(os.path.abspath(given.log))
        self.records = os.path.join(self.home, ".snakemake", "")  # what the frame writes down of a job is no work of it
        self.count = {"output": 0, "other": 0}
        with open(os.path.join(folder, "plan.json"), encoding="utf-8") as stream:
            self.awaited = json.load(stream).get(self.name, [])

    def pass_by(self, moment):
        with open(os.path.join(self.folder, "passed"), "a", encoding="utf-8") as stream:
            stream.write(f"{json.dumps([self.rule, self.name, moment])}\n")
        if moment in self.awaited:
            self.wait(moment)

    def wait(self, moment):
        mine = os.path.join(self.folder, f"{os.getpid()}.json")
        with open(mine, "w", encoding="utf-8") as stream:
            json.dump([self.rule, self.name, moment], stream)
        try:
            LINK(mine, os.path.join(self.folder, "reached.json"))
        except FileExistsError:  # another job waits already
            return
        finally:
            os.unlink(mine)
        time.sleep(600)

    def names(self, act, old, new, *rest, **more):
        """Give a file its name by ``act``, a function of ``os``."""
        path = os.path.abspath(new)
        if os.path.dirname(path) == self.logs or path.startswith(self.records) or not path.startswith(self.home):
            return act(old, new, *rest, **more)
        kind = "output" if any(path == out or path.startswith(out + os.sep) for out in self.outputs) else "other"
        self.count[kind] += 1
        number = self.count[kind]
        if kind == "output":
            self.pass_by(f"before output {number}")
        done = act(old, new, *rest, **more)
        self.pass_by(f"after output {number}" if kind == "output" else f"other {number}")
        return done


def watched(module, folder):
    """The frame of a job, with a look at what it passes."""
    start = module.start_job

    @contextlib.contextmanager
    def watched_start(snakemake):
        given = snakemake if isinstance(snakemake, module.Job) else module.Job.of(snakemake)
        job = Job(folder, given)
        for name in ("replace", "link"):
            setattr(os, name, functools.partial(job.names, getattr(os, name)))
        job.pass_by("beginning")
        with start(given) as started:
            yield started
        job.pass_by("end")

    return watched_start


class Finder:
    """Watches the frame of jobs as soon as a process imports it."""

    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        spec = PathFinder.find_spec(name, path) if name == FRAME else None
        if spec is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                module.start_job = watched(module, self.folder)

            spec.loader.exec_module = exec_module
        return spec


if os.environ.get("MOMENTS"):
    sys.meta_path.insert(0, Finder(os.environ["MOMENTS"]))
