"""Runs jobs on NCCL under carillon attach, judges what Carillon said of them, and prints a table: see run.sh.

Two kinds of cases. A job that is well computes the same with Carillon as without it, bit for bit; no verdict is reached
on it, and its tapes tell of all ranks. A job with a fault (faults.py) is left to hang: the verdict must be right while
it does, soon after the threshold, and so must the first finding of carillon postmortem once it was killed.
"""
import argparse
import concurrent.futures
import ctypes
import datetime
import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOKEN = "a-token-of-tests"
THRESHOLD = 2  # seconds, of jobs with a fault
TELLS_LINES = any(hasattr(ctypes.pythonapi, name) for name in ("_Py_DumpTraceback", "PyUnstable_DumpTraceback"))
HELD = 7  # seconds from a fault to the job's end, at least: a post-mortem takes what lasts five for a stall


@dataclass
class Case:
    name: str
    program: list
    ranks: int = 2
    env: dict = field(default_factory=dict)
    torchrun: bool = False
    limit: int = 90  # seconds

    # Of a job with a fault: what may be said of it, and the rank that it must be said of.
    live: tuple = ()
    dead: tuple = ()
    culprit: int = None
    at_once: bool = False  # without waiting for the threshold
    within: float = None   # seconds until it is said, at most, where that is no matter of the threshold
    ends: bool = False     # the job goes on to its end, and a refused call is told


@dataclass
class Row:
    case: str
    expected: str
    live: str = "-"
    after: str = "-"
    dead: str = "-"
    failures: list = field(default_factory=list)
    said: list = field(default_factory=list)


def fault(name, engine, live, dead=None, **more):
    more = {"culprit": 1, **more}
    ranks = f" ({more['ranks']} ranks)" if "ranks" in more else ""
    return Case(f"rank 1 {name}{ranks}", [str(HERE / "faults.py"), engine, name], live=live, dead=dead or live, **more)


NOTHING = ("nothing", "unknown", "transport")  # where nobody can know better, no rank may be blamed


def faults(engine):
    return [
        fault("sleeps", engine, ("not_entered",)),
        fault("skips a call", engine, ("not_entered",)),
        fault("makes another call", engine, ("mismatch",)),
        fault("is stopped", engine, ("rank_stopped",), at_once=True),
        fault("is killed", engine, ("rank_dead",), at_once=True),
        fault("joins late", engine, ("not_joined",)),
        fault("destroys twice", engine, ("nothing",), ("misuse",), ends=True),
        fault("has a busy stream", engine, ("stream_blocked",)),
        fault("sleeps before messages", engine, ("not_entered",), ranks=4),
        fault("sleeps before an all-to-all", engine, ("not_entered",), ranks=4),
        fault("skips messages", engine, ("mismatch",), ranks=4),
        fault("is slow", engine, ("straggler",), at_once=True, within=45),
        fault("receives first", engine, ("deadlock",)),
        # Each rank is a node, or there is no network. Preloaded is what run.sh has compiled for it, beside Carillon.
        fault("sends nothing", engine, ("transport",), env={
            "RANKS_OF_NODE": "1", "LD_PRELOAD": os.environ.get("CUT_LIBRARY", ""),
        }),
    ]


def pytorch_cases():
    def well(name, program=None, **more):
        program = program or re.sub(r"\W", "_", name)
        return Case(name, [str(HERE / "pytorch.py"), program], **more)

    return [
        well("DDP, torchrun", "ddp", torchrun=True),
        well("DDP, 4 ranks", "ddp", ranks=4),
        well("FSDP", "fsdp"),
        well("batch_isend_irecv"),
        well("split_group", ranks=4),
        well("subgroups"),
        well("non-blocking init"),
        well("DataLoader workers", "dataloader_workers"),
        well("compiled step", limit=150),
        well("two nodes", ranks=4, env={"RANKS_OF_NODE": "2"}),
        well("CUDA graph", "cuda_graph"),
        well("far ahead of its GPU", "far_ahead"),
        well("late by turns", ranks=4),
        well("end: synchronized", "end_synchronized"),
        well("end: at once", "end_at_once"),
        well("end: subgroup first", "end_subgroup_first"),
        well("end: world alone", "end_world_alone"),
        well("end: aborted", "end_aborted"),
        well("end: never destroyed", "end_never"),
        *faults("pytorch"),
        fault("sleeps", "pytorch", ("not_entered",), ranks=4),
        fault("makes another call", "pytorch", ("mismatch",), ranks=4),
        fault("misses the first call", "pytorch", ("not_entered",), env={"TORCH_NCCL_USE_COMM_NONBLOCKING": "1"},
              within=15),  # rank 0 comes to it when its init has ended
        fault("leaves out a replay", "pytorch", NOTHING, culprit=None),
    ]


def bare_cases():
    return [Case("all-reduces", [str(HERE / "bare.py")]), *faults("bare")]


# Below those that the kernel gives to connections, of which one would take the port of a job that is still starting.
PORTS = itertools.count(random.randrange(20000, 27000))  # below those that agents, and NCCL's RAS, listen at


def free_port():
    """A port for a job's store, another one each time."""
    for port in PORTS:
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Job:
    """A job of a case, with or without Carillon, and what it leaves in a folder."""

    def __init__(self, case, folder, tapes, carillon, deadline, threshold):
        self.folder, self.tapes, self.carillon = folder, tapes, carillon
        self.deadline = min(deadline, time.monotonic() + case.limit)
        folder.mkdir(parents=True)
        self.log = folder / "log"
        port = str(free_port())
        self.env = {
            **os.environ, **case.env, "STORE": str(folder), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
            "TORCHINDUCTOR_CACHE_DIR": str(folder.parent / "inductor"), "PYTHONUNBUFFERED": "1",
        }
        if case.torchrun:
            command = ["torchrun", "--nproc-per-node", str(case.ranks), "--master-port", port, *case.program]
        else:
            command = [sys.executable, str(HERE / "launch.py"), str(case.ranks), *case.program]
        if carillon:
            command = [carillon, "attach", "--job", "job", "--tape-dir", str(self.tapes), "--", *command]
            self.env.update(CARILLON_STALL_THRESHOLD=f"{threshold}s", CARILLON_HEALTH_TOKEN=TOKEN,
                            CARILLON_RAS_MIN_POLL_INTERVAL="off", CARILLON_HEALTH_ADDR="127.0.0.1:0")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True)

    def printed(self, expression):
        return re.findall(expression, self.log.read_text(errors="replace"), re.MULTILINE)

    def wait(self, until):
        """What until returns, once that is something; None if the job has ended, or takes too long."""
        while time.monotonic() < self.deadline:
            ended = self.process.poll() is not None
            if found := until():
                return found
            if ended:
                return None
            time.sleep(0.1)
        return None

    def end(self):
        """Ends the job as a person would, and then for sure. Returns the exit code; None if it had to be killed."""
        try:
            self.process.wait(max(0, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            return None
        return self.process.returncode

    def kill(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def verdicts(self):
        """The open verdicts, as the agent's endpoint tells them."""
        url = self.printed(r"a page for each process is at (http://\S+?)/?$")
        if not url:
            return []
        request = urllib.request.Request(url[0] + "/api/v1/verdicts", headers={"Authorization": "Bearer " + TOKEN})
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return json.load(answer)["verdicts"]
        except (OSError, urllib.error.URLError):
            return []  # the job has just ended

    def status(self):
        run = subprocess.run([self.carillon, "status", str(self.tapes)], env=self.env, capture_output=True, text=True)
        (self.folder / "status.txt").write_text(run.stdout + run.stderr)

    def postmortem(self):
        command = [self.carillon, "postmortem", str(self.tapes / "job")]
        run = subprocess.run(command, capture_output=True, text=True)
        (self.folder / "postmortem.txt").write_text(run.stdout + run.stderr)
        run = subprocess.run(command + ["--json"], capture_output=True, text=True)
        return json.loads(run.stdout) if run.returncode == 0 else None


def ranks_of(verdict):
    return [c["rank"] if c["rank"] >= 0 else c["comm_rank"] for c in verdict.get("culprits") or []]


def short(verdict):
    ranks = ",".join(map(str, ranks_of(verdict)))
    return verdict["reason"] + (f": {ranks}" if ranks else "")


def run_well(case, folder, tapes, carillon, deadline):
    row, printed = Row(case.name, "same results"), {}
    for attached in ("", carillon):
        job = Job(case, folder / ("with" if attached else "without"), tapes, attached, deadline, threshold=30)
        which = "with Carillon" if attached else "without Carillon"
        code = job.end()
        if code is None:
            row.failures.append(f"{which} it took too long")
        elif code:
            row.failures.append(f"{which} the exit code is {code}")
        printed[attached] = sorted(job.printed(r"\bresult .*$"))
        if len(printed[attached]) < case.ranks:
            row.failures.append(f"{which} there are {len(printed[attached])} results of {case.ranks} ranks")
        if row.failures and not attached:
            return row  # nothing to compare with
    if printed[""] != printed[carillon]:
        row.failures.append("the results differ")
    said = job.printed(r"reason=(\S+ culprit=\S*)")
    row.live = said[0] if said else "nothing"
    if said:
        row.failures.append("a verdict on a job that is well")
    if report := told_post_mortem(row, job):
        done = [r["operations"] for c in report["communicators"] for r in c["ranks"]]
        row.dead = row.dead if report["findings"] else f"nothing; {sum(done)} operations"
        if report["findings"]:
            row.failures.append("a finding on a job that was well")
        if len(report["processes"]) != case.ranks or not sum(done):
            row.failures.append(f"tapes of {len(report['processes'])} ranks, with {sum(done)} operations")
    return row


def told_post_mortem(row, job):
    """Notes what carillon postmortem says of a job."""
    report = job.postmortem()
    if report is None:
        row.failures.append("there is no post-mortem")
        return None
    first = (report["findings"] or [None])[0]
    row.dead = short(first) if first else "nothing"
    if first:
        row.said.append("post mortem: " + first["text"])
    for mistake in report.get("mistakes") or []:
        row.said.append(f"post mortem: ranks {mistake['ranks']}: {mistake['text']}")
    return report


def run_fault(case, folder, tapes, carillon, deadline, within):
    rank = "" if case.culprit is None else f": {case.culprit}"
    within = case.within or within
    row = Row(case.name, " or ".join(case.dead if case.ends else case.live) + rank)
    job = Job(case, folder, tapes, carillon, deadline, THRESHOLD)
    began = job.wait(lambda: job.printed(r"\bfault (\d+\.\d+)"))
    if not began:
        row.failures.append("it went wrong before its fault")
    elif case.ends:
        judge_end(row, job)
    else:
        judge_live(case, row, job, float(began[0]), within)
        time.sleep(max(0, float(began[0]) + HELD - time.time()))
    job.kill()
    judge_dead(case, row, told_post_mortem(row, job))
    return row


def judge_live(case, row, job, began, within):
    """Looks for the verdict until it is there, and notes all that is said until then."""
    seen = {}

    def look():
        for v in job.verdicts():
            seen.setdefault(short(v), v)
        return [] if "nothing" in case.live else [v for v in seen.values() if right(case, case.live, v)]

    patience = 4 if "nothing" in case.live else max(10, within)
    job.deadline = min(job.deadline, time.monotonic() + THRESHOLD + patience)
    found = job.wait(look)
    job.status()
    row.live = ", ".join(seen) or "nothing"
    row.said += ["live: " + v["text"] for v in seen.values()]
    row.failures += [f"it said {text}" for text, v in seen.items() if not right(case, case.live, v)]
    if found:
        after = moment(found[0]["since"]) - began - (0 if case.at_once else THRESHOLD)
        row.after = f"{after:.1f} s"
        if after > within:
            row.failures.append(f"it took {after:.1f} s more than the threshold")
    elif "nothing" not in case.live:
        row.failures.append("it never said what is so")


def judge_end(row, job):
    code, answer = job.end(), job.printed(r"\banswer (\d+)")
    row.live = f"NCCL's answer: {', '.join(answer) or 'none'}"
    if code != 0:
        row.failures.append(f"the exit code is {code}")
    if answer != ["4"]:
        row.failures.append("the second call was not answered with ncclInvalidArgument (4)")
    row.said += ["live: " + line for line in job.printed(r"\b(at=\"[^\"]*\" first=\"[^\"]*\")")]
    line = r"\([^)]*\.py:\d+\)"
    if TELLS_LINES and not job.printed(rf"\b(at=\"[^\"]*{line}[^\"]*\" first=\"[^\"]*{line})"):
        row.failures.append("it didn't say at which lines of Python the calls are")


def judge_dead(case, row, report):
    if report is None:
        return
    if case.ends:
        if any(m["ranks"] == [case.culprit] for m in report.get("mistakes") or []):
            row.dead = short({"reason": case.dead[0], "culprits": [{"rank": case.culprit}]})
        else:
            row.failures.append("post mortem, the refused call is not told")
    elif not report["findings"]:
        if "nothing" not in case.dead:
            row.failures.append("post mortem, nothing was found")
    elif not right(case, case.dead, report["findings"][0]):
        row.failures.append(f"post mortem, the first finding is {row.dead}")


def moment(text):
    """A time as Carillon writes it, in seconds."""
    text = re.sub(r"(\.\d{6})\d*", r"\1", text).replace("Z", "+00:00")
    return datetime.datetime.fromisoformat(text).timestamp()


def right(case, reasons, verdict):
    """Tells whether a verdict has one of the reasons, and names the rank, or both of two where data is between them."""
    ranks = ranks_of(verdict)
    both = verdict["reason"] in ("mismatch", "transport") and case.ranks == 2 and ranks == [0, 1]
    return verdict["reason"] in reasons and (both or case.culprit is None or ranks == [case.culprit])


def table(rows):
    head = ("CASE", "EXPECTED", "LIVE", "AFTER", "POST MORTEM", "")
    lines = [head] + [
        (r.case, r.expected, r.live[:40], r.after, r.dead[:40], "FAIL" if r.failures else "PASS") for r in rows
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
    print(f"\nAFTER: from the fault to the verdict, less the threshold of {THRESHOLD} s. "
          f"{sum(not r.failures for r in rows)} of {len(rows)} cases pass.")
    for r in rows:
        if r.failures or r.said:
            print(f"\n{r.case}:")
        for text in r.failures:
            print(f"  FAIL: {text}")
        for text in r.said:
            print(f"  {text}")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--carillon", required=True, help="the program; its library lies beside it")
    p.add_argument("--out", required=True, type=Path, help="a folder for what jobs print")
    p.add_argument("--tapes", required=True, type=Path, help="a folder for their tapes")
    p.add_argument("--bare", action="store_true", help="the cases that need no PyTorch, on the fake NCCL")
    p.add_argument("--jobs", type=int, default=3, help="how many cases run at a time")
    p.add_argument("--within", type=float, default=3, help="seconds from the threshold to the verdict, at most")
    p.add_argument("--limit", type=float, default=400, help="seconds for all cases together")
    p.add_argument("cases", nargs="*", help="only those whose names begin so")
    args = p.parse_args()
    deadline = time.monotonic() + args.limit

    def run(numbered):
        number, case = numbered
        name = f"{number:02}-{re.sub(r'[^a-z0-9]+', '-', case.name.lower())}"
        folder, tapes = args.out / name, args.tapes / name
        if time.monotonic() > deadline - 10:
            return Row(case.name, "-", failures=["no time was left for it"])
        if case.live:
            return run_fault(case, folder, tapes, args.carillon, deadline, args.within)
        return run_well(case, folder, tapes, args.carillon, deadline)

    cases = bare_cases() if args.bare else pytorch_cases()
    cases = [c for c in cases if not args.cases or any(c.name.startswith(name) for name in args.cases)]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        rows = list(pool.map(run, enumerate(cases, 1)))
    table(rows)
    return 1 if any(r.failures for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
