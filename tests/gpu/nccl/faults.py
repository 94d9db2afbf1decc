"""A job in which rank 1 goes wrong: faults.py bare|pytorch FAULT.

It makes its communicator, and all-reduces for some seconds. Then rank 1 prints "fault" and the time, and does what
FAULT says. What hangs then is left to hang: whoever started the job ends it.
"""
import importlib
import os
import signal
import sys
import time

MANY = 1 << 20


def hold():
    while True:
        signal.pause()


def main(engine, fault):
    job = importlib.import_module(engine)
    bad = job.rank == 1

    def goes_wrong(which):
        if fault == which and bad:
            print(f"fault {time.time():.3f}")
        return fault == which and bad

    # What ranks do in groups of messages, in jobs whose faults are about them.
    talks = {"messages": job.pass_on, "an all-to-all": job.all_to_all, "receives first": lambda: job.swap(not bad)}
    talk = next((what for name, what in talks.items() if fault.endswith(name)), None)

    job.meet()
    if goes_wrong("joins late"):
        hold()
    if goes_wrong("misses the first call"):  # to which NCCL connects the ranks
        hold()
    if fault == "sends nothing" and bad:
        job.send_nothing()
    job.join(MANY if fault == "sends nothing" else 1)
    goes_wrong("sends nothing")  # with the first operation
    for _ in range(20):
        if talk:
            talk()
        job.all_reduce(MANY)
        job.synchronize()
        time.sleep(0.1)
    replay = job.captured() if fault == "leaves out a replay" else None

    if goes_wrong("sleeps") or goes_wrong("sleeps before messages") or goes_wrong("sleeps before an all-to-all"):
        hold()
    slow = goes_wrong("is slow")
    while fault == "is slow":
        time.sleep(0.25 if slow else 0)
        job.all_reduce(1024)  # which takes much less than that on a busy machine, too
        job.synchronize()
    if goes_wrong("receives first"):  # as the other rank does
        job.swap(True)
    elif talk and not goes_wrong("skips messages"):
        talk()
    if goes_wrong("is stopped"):
        os.kill(os.getpid(), signal.SIGSTOP)
    if goes_wrong("is killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    if goes_wrong("has a busy stream"):
        job.busy(60)
    if goes_wrong("makes another call"):
        job.all_gather(4)
    elif replay is not None:
        if not goes_wrong("leaves out a replay"):
            replay()
    elif not goes_wrong("skips a call") and fault != "destroys twice":
        job.all_reduce(MANY)
    if fault == "skips a call":  # the program goes on, and the ranks' calls no longer match
        job.all_reduce(MANY)
        job.all_reduce(MANY)
    job.synchronize()
    if fault == "destroys twice":
        again = job.destroy()
        if goes_wrong(fault):
            print(f"answer {again()}")
        return
    hold()


if __name__ == "__main__":
    main(*sys.argv[1:])
