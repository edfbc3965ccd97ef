"""A signal is answered while the main thread computes, where Python handles none."""

import ctypes
import os
import signal
import threading
import time

from bytelax.training.guards import Interrupts


def test_a_signal_is_answered_within_a_call_that_python_cannot_leave():
    libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    held, answered, in_time = threading.Event(), threading.Event(), []

    def holder():
        libc.pthread_mutex_lock(mutex)
        held.set()
        time.sleep(0.2)  # the main thread waits for the mutex by then
        os.kill(os.getpid(), signal.SIGTERM)
        in_time.append(answered.wait(timeout=10))
        libc.pthread_mutex_unlock(mutex)

    told = []
    with Interrupts(1, lambda message: (told.append(message), answered.set())) as interrupts:
        assert not interrupts.agreed(1)
        thread = threading.Thread(target=holder)
        thread.start()
        held.wait()
        libc.pthread_mutex_lock(mutex)
        thread.join()
        assert interrupts.agreed(1)
    assert in_time == [True] and len(told) == 1


def test_what_was_there_before_is_there_after():
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    handler, wakeup = signal.getsignal(signal.SIGTERM), signal.set_wakeup_fd(writes)
    with Interrupts(1, print):
        pass
    assert signal.set_wakeup_fd(wakeup) == writes
    assert signal.getsignal(signal.SIGTERM) is handler
    os.close(reads)
    os.close(writes)
