// Jobs that are to be done later: each is a key whose deadline is the moment, and its death hands it to a worker.
//
// usage: node delayed_jobs.mjs [PORT]    without PORT: that of EMBERDB_PORT, or 6379
//
// The policy of the jobs writes every death to a stream once, with the value that the key had. Workers share the stream
// as a consumer group. No process has to look what is due, and nothing is lost while no worker runs.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';

const JOBS = 'example:job:';
const DUE = 'example:jobs-due';
const GROUP = 'workers';
const LIMIT_MS = 30_000;
// The server counts in milliseconds, from the beginning of its turns.
const CLOCK_MS = 5;

/** A job without a deadline would never be due: there is no default (NONE), and to give none is refused (REQUIRE). */
async function open(redis) {
  await redis.call('EXPIRY', 'POLICY', 'SET', JOBS, 'NONE', 'REQUIRE', 'EVENTS', DUE, 'WITHVALUE');
  await redis.xgroup('CREATE', DUE, GROUP, '0', 'MKSTREAM');
}

async function schedule(redis, id, job, delayMs) {
  await redis.set(JOBS + id, JSON.stringify(job), 'PX', delayMs);
}

/** Whether it is another time now; if not, the job is being done already. */
async function reschedule(redis, id, delayMs) {
  return (await redis.pexpire(JOBS + id, delayMs)) === 1;
}

/** Whether it will not be done; if not, it is being done already. What is deleted has not died: no event is written. */
async function cancel(redis, id) {
  return (await redis.del(JOBS + id)) === 1;
}

/** An entry of a stream comes as a list of names and values. */
function fieldsOf(list) {
  return Object.fromEntries(Array.from({ length: list.length / 2 }, (_, i) => [list[2 * i], list[2 * i + 1]]));
}

/**
 * Does what is due, one job after the other, until `signal` says that it is enough. A job is acknowledged when it is
 * done: if its worker fails on the way it stays pending, and another one can take it (XAUTOCLAIM).
 */
async function work(redis, name, perform, signal) {
  // It waits, which would hold up others on the same connection.
  const own = redis.duplicate();
  while (!signal.aborted) {
    const read = await own.xreadgroup('GROUP', GROUP, name, 'COUNT', 1, 'BLOCK', 200, 'STREAMS', DUE, '>');
    for (const [entry, fields] of read?.[0][1] ?? []) {
      const { key, value, lag } = fieldsOf(fields);
      await perform(key.slice(JOBS.length), JSON.parse(value), lag);
      await own.multi().xack(DUE, GROUP, entry).xdel(DUE, entry).exec();
    }
  }
  own.disconnect();
}

async function until(condition, what) {
  const end = performance.now() + LIMIT_MS;
  while (!(await condition())) {
    assert(performance.now() < end, `it took too long until ${what}`);
    await sleep(10);
  }
}

async function demonstrate(redis) {
  await open(redis);
  await assert.rejects(redis.set(`${JOBS}undated`, '{}'), /requires a deadline/, 'a job for never was accepted');

  const begin = performance.now();
  const delays = { letter: 900, invoice: 300, backup: 700, greeting: 100, report: 500, refund: 600, survey: 800 };
  for (const [id, delayMs] of Object.entries(delays)) await schedule(redis, id, { about: id }, delayMs);
  await schedule(redis, 'renewal', { about: 'renewal' }, 24 * 3600 * 1000);
  assert(await reschedule(redis, 'renewal', (delays.renewal = 400)), 'a job of tomorrow could not be brought forward');
  // These are due soon, so a machine that was busy may be too late for them, and is told so.
  const isPostponed = await reschedule(redis, 'refund', 1000);
  if (isPostponed) delays.refund = 1000;
  const isCancelled = await cancel(redis, 'survey');
  if (isCancelled) delete delays.survey;
  const orNot = (isSo) => (isSo ? '' : 'not ');
  console.log(`the refund is ${orNot(isPostponed)}postponed, the survey is ${orNot(isCancelled)}cancelled`);

  const begun = new Set();
  const done = [];
  const stop = new AbortController();
  const worker = (name) => {
    const perform = async (id, job, lagMs) => {
      assert.equal(job.about, id, `${name} was given the payload of another job`);
      const afterMs = performance.now() - begin;
      console.log(`${name} does the ${id} after ${Math.round(afterMs)} ms; the key was deleted ${lagMs} ms late`);
      // The first job of each takes until the other has one, too: who is busy holds up nobody.
      begun.add(name);
      await until(() => begun.size === 2, 'the other worker is given a job');
      done.push({ id, afterMs });
    };
    return work(redis, name, perform, stop.signal);
  };
  const ids = Object.keys(delays);
  const allDone = async () => {
    await until(() => done.length >= ids.length, `all jobs are done; now they are ${done.map(({ id }) => id)}`);
    await until(async () => (await redis.xlen(DUE)) === 0, 'all are acknowledged');
    stop.abort();
  };
  await Promise.all([worker('anna'), worker('ben'), allDone()]);

  assert.deepEqual(done.map(({ id }) => id).sort(), ids.sort(), 'not every job was done, or not once');
  // So one comes behind another that was to be later only by as much as it was late itself.
  for (const { id, afterMs } of done) assert(afterMs >= delays[id] - CLOCK_MS, `the ${id} was done too early`);
  assert.equal((await redis.xpending(DUE, GROUP))[0], 0, 'something is pending still');
}

async function cleanUp(redis) {
  await redis.call('EXPIRY', 'POLICY', 'DEL', JOBS);
  for await (const keys of redis.scanStream({ match: `${JOBS}*`, count: 1000 })) {
    for (const key of keys) await redis.del(key);
  }
  await redis.del(DUE);
}

const redis = new Redis(Number(process.argv[2] ?? process.env.EMBERDB_PORT ?? 6379));
try {
  // A run that was interrupted may have left something.
  await cleanUp(redis);
  await demonstrate(redis);
} finally {
  await cleanUp(redis);
  redis.disconnect();
}
