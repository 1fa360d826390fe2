"""Queues of tasks that keep their state in Redis, against a server: rq and Celery.

usage: queues.py PORT [--newer] [CHECK...]    as harness.py says
"""

import logging
import math
import operator
import sys
import time
from datetime import timedelta

import redis

from harness import address, check, main, same, wait_until


@check
def jobs_of_rq(r):
    from rq import Queue, Retry, SimpleWorker
    from rq.exceptions import DuplicateJobError
    from rq.job import Job
    from rq.registry import FailedJobRegistry, FinishedJobRegistry

    # It keeps pickled data, so it wants bytes.
    raw = redis.Redis.from_url(address(r))
    queue = Queue("work", connection=raw)
    worker = SimpleWorker([queue], connection=raw)
    quiet = {"burst": True, "logging_level": logging.CRITICAL}

    jobs = [queue.enqueue(math.factorial, n) for n in range(30)]
    first = queue.enqueue(operator.add, 1, 2, at_front=True)
    queue.enqueue_many([Queue.prepare_data(operator.mul, (n, n), result_ttl=100) for n in range(5)])
    last = queue.enqueue(operator.neg, 5, depends_on=[jobs[3], first])
    same((queue.count, last.get_status()), (36, "deferred"))
    same(queue.job_ids[0], first.id)
    same(worker.work(**quiet), True)
    same([job.return_value() for job in jobs], [math.factorial(n) for n in range(30)])
    same((last.get_status(), last.return_value(), queue.count), ("finished", -5, 0))
    same(len(FinishedJobRegistry(queue=queue)), 37)

    failed = queue.enqueue(operator.truediv, 1, 0, retry=Retry(max=2))
    worker.work(**quiet)
    failed.refresh()
    same((failed.get_status(), failed.retries_left), ("failed", 0))
    same(failed.id in FailedJobRegistry(queue=queue), True)
    assert "ZeroDivisionError" in failed.latest_result().exc_string
    failed.requeue()
    same(queue.count, 1)
    worker.work(**quiet)
    same(FailedJobRegistry(queue=queue).get_job_ids(), [failed.id])

    # This goes by a script that looks for the job, stores it and puts it in the queue.
    queue.enqueue(math.sqrt, 16, job_id="once", unique=True)
    try:
        queue.enqueue(math.sqrt, 25, job_id="once", unique=True)
    except DuplicateJobError:
        pass
    else:
        raise AssertionError("the job was there already")
    worker.work(**quiet)
    same(Job.fetch("once", connection=raw).return_value(), 4.0)
    # So does this: a script deletes the jobs with the queue, by keys that it reads from the list.
    for n in range(20):
        queue.enqueue(math.sqrt, n, job_id=f"never-{n}")
    same(queue.empty(), 20)
    same((queue.count, r.keys("rq:job:never-*")), (0, []))
    queue.delete()
    raw.close()


@check
def limits_and_delays_of_rq(r):
    from rq import Queue, RateLimit, SimpleWorker
    from rq.scheduler import RQScheduler

    raw = redis.Redis.from_url(address(r))
    queue = Queue("work", connection=raw)
    worker = SimpleWorker([queue], connection=raw)
    quiet = {"burst": True, "logging_level": logging.CRITICAL}

    # Scripts hold jobs back and let the next one through when one ends.
    limit = RateLimit("shared", concurrency=2)
    jobs = [queue.enqueue(math.sqrt, n * n, rate_limit=limit) for n in range(6)]
    same([job.get_status() for job in jobs], ["queued"] * 2 + ["rate_limited"] * 4)
    same(queue.count, 2)
    worker.work(**quiet)
    same([job.return_value() for job in jobs], [float(n) for n in range(6)])

    soon = queue.enqueue_in(timedelta(milliseconds=10), operator.add, 1, 1)
    later = queue.enqueue_in(timedelta(hours=1), operator.add, 2, 2)
    same((soon.get_status(), queue.count), ("scheduled", 0))
    scheduler = RQScheduler([queue], connection=raw)
    same(scheduler.acquire_locks(), {"work"})
    same(RQScheduler([queue], connection=raw).acquire_locks(), set())

    def due():
        scheduler.enqueue_scheduled_jobs()
        return queue.count == 1

    wait_until(due)
    scheduler.release_locks()
    worker.work(**quiet)
    same((soon.return_value(), later.get_status()), (2, "scheduled"))
    later.cancel()
    same(later.get_status(), "canceled")
    raw.close()


@check
def tasks_of_celery(r):
    from celery import Celery, chain, chord, group
    from celery.contrib.testing.worker import start_worker
    from celery.exceptions import TaskRevokedError
    from celery.result import AsyncResult

    # The broker's side takes no protocol.
    app = Celery("checks", broker=address(r).split("?")[0], backend=address(r, database=1), set_as_current=False)
    app.conf.update(
        broker_connection_retry_on_startup=False,
        result_expires=600,
        task_default_queue="checks",
        # So that tasks that wait do so in the queue, in the order of their priority.
        worker_prefetch_multiplier=1,
        broker_transport_options={"queue_order_strategy": "priority", "priority_steps": [0, 5, 9]},
    )
    ran = []

    @app.task(name="add")
    def add(a, b):
        ran.append(("add", a, b))
        return a + b

    @app.task(name="total")
    def total(numbers):
        return sum(numbers)

    @app.task(name="fail")
    def fail():
        raise ValueError("it failed")

    @app.task(name="again", bind=True, max_retries=3)
    def again(self):
        if self.request.retries < 2:
            raise self.retry(countdown=0)
        return self.request.retries

    @app.task(name="ignored", ignore_result=True)
    def ignored(n):
        ran.append(("ignored", n))

    limit = {"timeout": 20}
    # These are in the queue before any worker is: the most urgent one is first.
    for priority in (9, 0, 5):
        ignored.apply_async((priority,), priority=priority)
    stale = add.apply_async((100, 0), expires=0.01)
    time.sleep(0.02)

    with start_worker(app, pool="solo", concurrency=1, perform_ping_check=False, loglevel="CRITICAL"):
        results = [add.delay(n, n) for n in range(20)]
        same([result.get(**limit) for result in results], [2 * n for n in range(20)])
        urgent = lambda: [n for kind, n, *_ in ran if kind == "ignored"]
        wait_until(lambda: len(urgent()) == 3)
        same(urgent(), [0, 5, 9])
        try:
            stale.get(**limit)
        except TaskRevokedError:
            pass
        else:
            raise AssertionError("it came too late")
        assert ("add", 100, 0) not in ran, "it ran all the same"

        # Workers are asked things by PUBLISH and answer in a list.
        wait_until(lambda: [list(reply.values()) for reply in app.control.ping(timeout=1, limit=1)] == [[{"ok": "pong"}]])

        later = add.apply_async((1, 2), countdown=1)
        failed = fail.delay()
        try:
            failed.get(**limit)
        except ValueError as error:
            same(str(error), "it failed")
        else:
            raise AssertionError("it did not fail")
        same((failed.state, again.delay().get(**limit)), ("FAILURE", 2))
        same(group(add.s(n, 1) for n in range(10))().get(**limit), list(range(1, 11)))
        same(chain(add.s(1, 2), add.s(3), add.s(4))().get(**limit), 10)
        # The last part to end begins the body: a script counts the parts.
        same(chord((add.s(n, n) for n in range(10)), total.s())().get(**limit), 90)
        same(later.get(**limit), 3)

        key = f"celery-task-meta-{results[0].id}"
        results_of = redis.Redis.from_url(address(r, database=1))
        assert 500 < results_of.ttl(key) <= 600
        same(AsyncResult(results[1].id, app=app).result, 2)
        results[0].forget()
        same(results_of.exists(key), 0)
        results_of.close()
    same(r.llen("checks"), 0)
    app.close()


main()
