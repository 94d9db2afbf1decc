"""Says what signals it gets, until it gets SIGHUP."""
import signal
import sys

for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
    signal.signal(number, lambda n, _: print("got", signal.Signals(n).name, flush=True))
signal.signal(signal.SIGHUP, lambda *_: sys.exit(0))
print("ready", flush=True)
while True:
    signal.pause()
