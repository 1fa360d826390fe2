// Packages that live on Lua scripts, against a server: ioredis's own commands, BullMQ, Redlock, rate-limiter-flexible;
// and sessions of Express, which are kept by connect-redis.
//
// usage: node scripts.mjs PORT [--newer] [CHECK...]    --newer: nothing here is newer than redis-server 7.0
// Every check runs, on an empty server; the exit status says whether all succeeded.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { createNodeRedisClient, DelayedError, FlowProducer, Queue, QueueEvents, RateLimitError, UnrecoverableError, WaitingChildrenError, Worker } from 'bullmq';
import { RedisStore } from 'connect-redis';
import session from 'express-session';
import { Redis } from 'ioredis';
import { BurstyRateLimiter, RateLimiterMemory, RateLimiterQueue, RateLimiterRedis } from 'rate-limiter-flexible';
import { createClient } from 'redis';
import redlockModule from 'redlock';

// Node reads the package as CommonJS.
const Redlock = redlockModule.default ?? redlockModule;
const LIMIT_MS = 20_000;
const port = Number(process.argv[2]);
const url = `redis://127.0.0.1:${port}`;
const same = assert.deepEqual;

async function until(condition, what) {
  const end = Date.now() + LIMIT_MS;
  while (!(await condition())) {
    assert(Date.now() < end, `never: ${what}`);
    await sleep(5);
  }
}

/** Whether nothing is worked on, nor waits to be. */
async function idle(queue) {
  const counts = await queue.getJobCounts('wait', 'prioritized', 'active');
  return Object.values(counts).every((count) => count === 0);
}

function between(low, value, high) {
  assert(low <= value && value <= high, `${value} is not from ${low} to ${high}`);
}

/** Clients of node-redis in both protocols, one after the other. */
async function withNodeRedis(r, use) {
  for (const RESP of [2, 3]) {
    await r.flushall();
    const client = await createClient({ url, RESP }).connect();
    await use(client);
    client.destroy();
  }
}

const commandChecks = {
  async commandsOfOnesOwn(r) {
    const own = r.duplicate();
    own.defineCommand('total', {
      lua: "local n = 0 for _, key in ipairs(KEYS) do n = n + redis.call('INCRBY', key, ARGV[1]) end return n",
    });
    own.defineCommand('echoes', { numberOfKeys: 1, lua: 'return {KEYS[1], ARGV[1], ARGV[2]}' });
    own.defineCommand('first', { numberOfKeys: 1, lua: "return redis.call('LINDEX', KEYS[1], 0)", readOnly: true });
    same(await own.total(3, 'a', 'b', 'c', 2), 6);
    same(await own.echoes('k', 'x', 'y'), ['k', 'x', 'y']);
    const binary = Buffer.from([0, 255, 13, 10]);
    same(await own.echoesBuffer(binary, binary, 'y'), [binary, binary, Buffer.from('y')]);
    await own.rpush('l', 'head', 'tail');
    same(await own.first('l'), 'head');
    await assert.rejects(own.first('a'), /WRONGTYPE/);
    // The package sends the whole script again once the server has forgotten it.
    same(await r.script('FLUSH'), 'OK');
    same(await own.total(1, 'a', 1), 3);
    own.disconnect();
  },

  async pipelinesOfCommandsOfOnesOwn(r) {
    const own = new Redis(port, { scripts: { add: { numberOfKeys: 2, lua: "redis.call('INCR', KEYS[1]) return redis.call('RPUSH', KEYS[2], ARGV[1])" } } });
    for (const round of [1, 2]) {
      const pipeline = own.pipeline();
      for (let n = 0; n < 200; n++) pipeline.add(`count:${n % 10}`, `list:${n % 7}`, n).ping(n);
      const replies = await pipeline.exec();
      same(replies.filter(([error]) => error), []);
      same(replies.at(-1)[1], '199');
      same(await r.mget('count:0', 'count:9'), [`${20 * round}`, `${20 * round}`]);
      // The package thinks that the server knows the script, and has to send it again.
      await r.script('FLUSH', 'ASYNC');
    }
    // In a transaction it cannot.
    await own.add('count:0', 'other', 'x');
    const replies = await own.multi().add('count:0', 'tx', 'x').add('count:0', 'tx', 'y').llen('tx').exec();
    same(replies, [[null, 1], [null, 2], [null, 2]]);
    own.defineCommand('wrong', { numberOfKeys: 1, lua: "redis.call('SET', KEYS[1], 1) return redis.error_reply('MINE no')" });
    await assert.rejects(own.wrong('w'), /^ReplyError: MINE no/);
    const [failed, after] = await own.multi().wrong('w').get('w').exec();
    assert.match(String(failed[0]), /MINE no/);
    same(after, [null, '1']);
    const prefixed = r.duplicate({ keyPrefix: 'app:' });
    prefixed.defineCommand('put', { numberOfKeys: 1, lua: "return redis.call('SET', KEYS[1], ARGV[1])" });
    same(await prefixed.put('k', 'v'), 'OK');
    same(await r.get('app:k'), 'v');
    prefixed.disconnect();
    own.disconnect();
  },
};

/** Redlock with one node. */
const lockChecks = {
  async locks(r) {
    const redlock = new Redlock([r], { retryCount: 0 });
    let lock = await redlock.acquire(['a', 'b'], 10_000);
    between(9_000, await r.pttl('a'), 10_000);
    await assert.rejects(redlock.acquire(['b', 'c'], 1_000), /unable to achieve a quorum/);
    same(await r.exists('c'), 0);
    lock = await lock.extend(30_000);
    between(29_000, await r.pttl('b'), 30_000);
    await lock.release();
    same(await r.exists('a', 'b'), 0);
    await assert.rejects(lock.extend(1_000), /already-expired/);
    // One whose deadline has passed is another's.
    const short = await redlock.acquire(['a'], 20);
    await until(async () => !(await r.exists('a')), 'the lock ends');
    const next = await redlock.acquire(['a'], 10_000);
    await assert.rejects(short.release(), /unable to achieve a quorum/);
    await next.release();
  },

  async aLockForMany(r) {
    const clients = Array.from({ length: 4 }, () => r.duplicate());
    let inside = 0;
    await Promise.all(
      clients.map(async (client) => {
        const redlock = new Redlock([client], { retryCount: -1, retryDelay: 2, retryJitter: 2, automaticExtensionThreshold: 100 });
        for (let round = 0; round < 10; round++) {
          await redlock.using(['resource'], 5_000, async (signal) => {
            inside += 1;
            same(inside, 1);
            const number = Number(await client.get('number'));
            await client.set('number', number + 1);
            inside -= 1;
            same(signal.aborted, false);
          });
        }
      }),
    );
    same(await r.get('number'), '40');
    // It lengthens the lock by itself while the work goes on.
    const redlock = new Redlock([r], { automaticExtensionThreshold: 2_500 });
    await redlock.using(['long'], 3_000, async (signal) => {
      await sleep(3_500);
      same(signal.aborted, false);
      same(await r.exists('long'), 1);
    });
    same(await r.exists('long'), 0);
    clients.forEach((client) => client.disconnect());
  },
};

const limitChecks = {
  async limitsOfPoints(r) {
    const limiter = new RateLimiterRedis({ storeClient: r, points: 10, duration: 100, blockDuration: 200, keyPrefix: 'login' });
    await consumeTen(limiter, (key) => r.pttl(key));
  },

  async limitsOfPointsInNodeRedis(r) {
    await withNodeRedis(r, async (client) => {
      const limiter = new RateLimiterRedis({
        storeClient: client,
        useRedisPackage: true,
        points: 10,
        duration: 100,
        blockDuration: 200,
        keyPrefix: 'login',
      });
      await consumeTen(limiter, (key) => client.pTTL(key));
    });
  },

  async limitsOfManyAtOnce(r) {
    const clients = Array.from({ length: 4 }, () => r.duplicate());
    const limiters = clients.map((client) => new RateLimiterRedis({ storeClient: client, points: 10, duration: 100 }));
    const consumed = await Promise.allSettled(Array.from({ length: 40 }, (_, n) => limiters[n % 4].consume('user')));
    same(consumed.filter(({ status }) => status === 'fulfilled').length, 10);
    // What is refused counts, too, so that nobody is admitted earlier for asking more.
    same((await limiters[0].get('user')).consumedPoints, 40);
    clients.forEach((client) => client.disconnect());
  },

  async limitsThatEnd(r) {
    const limiter = new RateLimiterRedis({ storeClient: r, points: 2, duration: 1 });
    await limiter.consume('user', 2);
    const { msBeforeNext } = await limiter.get('user');
    between(1, msBeforeNext, 1_000);
    await sleep(msBeforeNext + 5);
    same((await limiter.consume('user')).isFirstInDuration, true);
    const steady = new RateLimiterRedis({ storeClient: r, points: 2, duration: 100, keyPrefix: 'steady' });
    const burst = new RateLimiterRedis({ storeClient: r, points: 5, duration: 100, keyPrefix: 'burst' });
    const bursty = new BurstyRateLimiter(steady, burst);
    const answers = await Promise.allSettled(Array.from({ length: 12 }, () => bursty.consume('bursty')));
    same(answers.filter(({ status }) => status === 'fulfilled').length, 7);
    const queue = new RateLimiterQueue(new RateLimiterRedis({ storeClient: r, points: 2, duration: 1, keyPrefix: 'queue' }));
    const begin = Date.now();
    await Promise.all([1, 2, 3].map(() => queue.removeTokens(1)));
    assert(Date.now() - begin >= 500, 'the third has to wait');
  },

  async limitsWithInsurance() {
    const nobody = new Redis({ port: 1, enableOfflineQueue: false, retryStrategy: () => null, lazyConnect: true });
    nobody.on('error', () => {});
    const limiter = new RateLimiterRedis({
      storeClient: nobody,
      points: 10,
      duration: 100,
      insuranceLimiter: new RateLimiterMemory({ points: 2, duration: 100 }),
    });
    same((await limiter.consume('user')).remainingPoints, 1);
    same((await limiter.consume('user')).remainingPoints, 0);
    const refused = await limiter.consume('user').catch((result) => result);
    same(refused.remainingPoints, 0);
    nobody.disconnect();
  },
};

async function consumeTen(limiter, pttl) {
  for (let n = 1; n <= 10; n++) {
    const result = await limiter.consume('user');
    same([result.consumedPoints, result.remainingPoints, result.isFirstInDuration], [n, 10 - n, n === 1]);
    between(98_000, result.msBeforeNext, 100_000);
  }
  const refused = await limiter.consume('user').catch((result) => result);
  same([refused.consumedPoints, refused.remainingPoints], [11, 0]);
  between(198_000, refused.msBeforeNext, 200_000);
  between(198_000, await pttl('login:user'), 200_000);
  same(await limiter.delete('user'), true);
  same(await limiter.get('user'), null);
  same((await limiter.penalty('user', 3)).consumedPoints, 3);
  same((await limiter.reward('user', 2)).consumedPoints, 1);
  same((await limiter.get('user')).remainingPoints, 9);
  same((await limiter.set('user', 7, 50)).consumedPoints, 7);
  between(48_000, await pttl('login:user'), 50_000);
  await limiter.block('user', 30);
  const blocked = await limiter.consume('user').catch((result) => result);
  between(28_000, blocked.msBeforeNext, 30_000);
  await limiter.delete('user');
  await limiter.set('ever', 1, 0);
  same(await pttl('login:ever'), -1);
}

/** What BullMQ is asked, with a client of each package. */
function queueChecks(connect) {
  let parts = [];
  // Queues, workers and so on, each with a connection of its own.
  const open = (Part, name, ...rest) => {
    const client = connect();
    const options = { ...rest.pop(), connection: client };
    const part = name === null ? new Part(options) : new Part(name, ...rest, options);
    part.on('error', () => {});
    part.setMaxListeners(0);
    parts.push([part, client]);
    return part;
  };
  // However a check ends, its workers must not meet the next one's jobs.
  const closing = (check) => async () => {
    parts = [];
    try {
      await check();
    } finally {
      await Promise.allSettled(parts.map(([part]) => part.close()));
      parts.forEach(([, client]) => client.disconnect());
    }
  };

  const checks = {
    async jobs() {
      const queue = open(Queue, 'work', {});
      const events = open(QueueEvents, 'work', {});
      await events.waitUntilReady();
      const progress = [];
      events.on('progress', ({ data }) => progress.push(data));
      const order = [];
      const work = async (job) => {
        order.push(job.name);
        if (job.name === 'fails once' && job.attemptsMade === 0) throw new Error('not yet');
        if (job.name === 'fails') throw new Error('no');
        if (job.name === 'never again') throw new UnrecoverableError('never');
        if (job.name === 'reports') {
          await job.updateProgress(50);
          await job.log('half');
        }
        return job.data.n * 2;
      };

      // They are in the queue before any worker is: the first numbers are the most urgent ones.
      for (const priority of [3, 1, 2]) await queue.add(`urgent ${priority}`, { n: 0 }, { priority });
      same(await queue.getCountsPerPriority([1, 2, 3]), { 1: 1, 2: 1, 3: 1 });
      same(await queue.count(), 3);
      const first = open(Worker, 'work', work, { concurrency: 1 });
      await until(async () => (await queue.getCompletedCount()) === 3, 'three jobs');
      same(order, ['urgent 1', 'urgent 2', 'urgent 3']);
      await first.close();

      order.length = 0;
      const bulk = await queue.addBulk(Array.from({ length: 30 }, (_, n) => ({ name: 'plain', data: { n } })));
      const retried = await queue.add('fails once', { n: 21 }, { attempts: 3, backoff: { type: 'exponential', delay: 10 } });
      const failed = await queue.add('fails', { n: 0 }, { attempts: 2 });
      const unrecoverable = await queue.add('never again', { n: 0 }, { attempts: 5 });
      const delayed = [];
      for (let n = 0; n < 10; n++) delayed.push(await queue.add('later', { n }, { delay: 100 + 10 * n }));
      const reports = await queue.add('reports', { n: 4 });
      for (let n = 0; n < 3; n++) await queue.add('urgent', { n }, { priority: n + 1 });
      await queue.add('far', { n: 0 }, { delay: 3_600_000, jobId: 'far' });
      // The same name is the same job.
      await queue.add('far', { n: 1 }, { delay: 3_600_000, jobId: 'far' });
      same(await queue.getJobCounts('wait', 'prioritized', 'delayed'), { wait: 34, prioritized: 3, delayed: 11 });

      const worker = open(Worker, 'work', work, { concurrency: 4 });
      same(await Promise.all(bulk.map((job) => job.waitUntilFinished(events, LIMIT_MS))), bulk.map((_, n) => 2 * n));
      same(await retried.waitUntilFinished(events, LIMIT_MS), 42);
      await assert.rejects(failed.waitUntilFinished(events, LIMIT_MS), /no/);
      same(await Promise.all(delayed.map((job) => job.waitUntilFinished(events, LIMIT_MS))), delayed.map((_, n) => 2 * n));
      same(await reports.waitUntilFinished(events, LIMIT_MS), 8);
      await until(() => idle(queue), 'all have ended');
      same(await queue.getJobCounts('completed', 'failed', 'delayed', 'wait', 'active', 'prioritized'), {
        completed: 48,
        failed: 2,
        delayed: 1,
        wait: 0,
        active: 0,
        prioritized: 0,
      });
      same([order.filter((name) => name === 'fails').length, order.filter((name) => name === 'never again').length], [2, 1]);
      same(order.filter((name) => name === 'fails once').length, 2);
      same((await queue.getJobLogs(reports.id)).logs, ['half']);
      await until(() => progress.includes(50), 'the progress');
      same(await (await queue.getJob(failed.id)).getState(), 'failed');
      same((await queue.getJob(unrecoverable.id)).failedReason, 'never');

      // Jobs are read, run again, taken away.
      const far = await queue.getJob('far');
      same(far.data, { n: 0 });
      await far.updateData({ n: 50 });
      await far.promote();
      same(await far.waitUntilFinished(events, LIMIT_MS), 100);
      await far.remove();
      same(await queue.getJob('far'), undefined);
      await (await queue.getJob(failed.id)).retry();
      await until(async () => order.filter((name) => name === 'fails').length === 3, 'it fails again');
      await until(async () => (await queue.getFailedCount()) === 2, 'it failed again');
      same((await queue.clean(0, 10, 'completed')).length, 10);
      same(await queue.getCompletedCount(), 38);
      await worker.close();
      await queue.obliterate({ force: true });
      same(await queue.getJobCounts('completed', 'failed'), { completed: 0, failed: 0 });
    },

    async manyWorkers() {
      const queue = open(Queue, 'many', { defaultJobOptions: { removeOnComplete: 50 } });
      const ran = new Map();
      const work = async (job) => ran.set(job.data.n, (ran.get(job.data.n) ?? 0) + 1);
      for (let n = 0; n < 4; n++) open(Worker, 'many', work, { concurrency: 5 });
      const job = (n) => ({ name: 'plain', data: { n }, opts: { priority: n % 3, delay: n % 5 === 0 ? 20 : 0 } });
      await Promise.all([0, 1, 2].map((part) => queue.addBulk(Array.from({ length: 100 }, (_, n) => job(100 * part + n)))));
      await until(() => ran.size === 300, 'all jobs');
      await until(() => idle(queue), 'all have ended');
      same([...ran.values()].filter((times) => times !== 1), []);
      same(await queue.getCompletedCount(), 50);
    },

    async jobsThatAreMoved() {
      const queue = open(Queue, 'moved', {});
      const flows = open(FlowProducer, null, {});
      const [low, high] = [await queue.add('low', {}, { priority: 9 }), await queue.add('high', {}, { priority: 5 })];
      await low.changePriority({ priority: 1 });
      same((await queue.getJobs(['prioritized'], 0, -1, true)).map(({ name }) => name), ['low', 'high']);
      await low.changePriority({ priority: 0 });
      same((await queue.getWaiting()).map(({ name }) => name), ['low']);
      const far = await queue.add('far', {}, { delay: 3_600_000 });
      await far.changeDelay(7_200_000);
      same((await queue.getJob(far.id)).delay, 7_200_000);
      await queue.addBulk(Array.from({ length: 20 }, () => ({ name: 'far', data: {}, opts: { delay: 3_600_000 } })));
      await queue.promoteJobs({ count: 5 });
      same(await queue.getJobCounts('wait', 'delayed', 'prioritized'), { wait: 22, delayed: 0, prioritized: 1 });
      await high.updateProgress({ done: 1 });
      same((await queue.getJob(high.id)).progress, { done: 1 });

      // All fail, and all are run again.
      let fails = true;
      const steps = [];
      const work = async (job, token) => {
        if (job.name === 'grows' && !job.data.grown) {
          // A job adds a child and waits for it.
          await queue.add('child', {}, { parent: { id: job.id, queue: job.queueQualifiedName } });
          await job.updateData({ grown: true });
          if (await job.moveToWaitingChildren(token)) throw new WaitingChildrenError();
        }
        steps.push(job.name);
        if (fails) throw new Error('not now');
        return 1;
      };
      const worker = open(Worker, 'moved', work, { concurrency: 5, metrics: { maxDataPoints: 10 } });
      await until(async () => (await queue.getFailedCount()) === 23, 'all fail');
      fails = false;
      await queue.retryJobs({ count: 7 });
      await until(async () => (await queue.getCompletedCount()) === 23, 'all succeed');
      same(await queue.getFailedCount(), 0);
      same([(await queue.getMetrics('failed')).meta.count, (await queue.getMetrics('completed')).meta.count], [23, 23]);
      steps.length = 0;
      const grown = await queue.add('grows', {});
      await until(async () => (await grown.getState()) === 'completed', 'the job with a child');
      same(steps, ['child', 'grows']);
      await worker.close();

      // A family that nobody has worked on is taken away.
      const children = [1, 2, 3].map((n) => ({ name: 'child', queueName: 'moved', data: { n } }));
      const { job: parent } = await flows.add({ name: 'parent', queueName: 'moved', children });
      same((await parent.getDependenciesCount()).unprocessed, 3);
      const tree = await flows.getFlow({ id: parent.id, queueName: 'moved' });
      same(tree.children.length, 3);
      await tree.children[0].job.remove();
      same((await parent.getDependenciesCount()).unprocessed, 2);
      await tree.children[1].job.removeChildDependency();
      await parent.removeUnprocessedChildren();
      same(await parent.getState(), 'waiting');
      await parent.remove();
      same(await queue.getJobCountByTypes('wait', 'waiting-children'), 1);
    },

    async flowsAndSchedules() {
      const queue = open(Queue, 'flow', {});
      const flows = open(FlowProducer, null, {});
      let schedules = 0;
      const work = async (job) => {
        if (job.name === 'parent') return Object.values(await job.getChildrenValues()).reduce((sum, n) => sum + n, 0);
        if (job.name === 'tick') schedules += 1;
        return job.data.n;
      };
      const children = Array.from({ length: 10 }, (_, n) => ({ name: 'child', queueName: 'flow', data: { n } }));
      const { job: parent } = await flows.add({ name: 'parent', queueName: 'flow', children });
      same(await parent.getState(), 'waiting-children');
      same((await queue.getJobCounts('waiting-children', 'wait')), { 'waiting-children': 1, wait: 10 });
      await queue.upsertJobScheduler('ticks', { every: 50 }, { name: 'tick', data: { n: 0 } });
      same((await queue.getJobSchedulers()).length, 1);
      const worker = open(Worker, 'flow', work, { concurrency: 3 });
      await until(async () => (await parent.getState()) === 'completed', 'the parent');
      same((await queue.getJob(parent.id)).returnvalue, 45);
      await until(() => schedules >= 3, 'the schedule');
      same(await queue.removeJobScheduler('ticks'), true);

      await until(async () => (await idle(queue)) && (await queue.getDelayedCount()) === 0, 'nothing is at work');
      const before = await queue.getCompletedCount();
      await queue.pause();
      same(await queue.isPaused(), true);
      await queue.add('plain', { n: 1 });
      await sleep(50);
      const { wait, paused, active } = await queue.getJobCounts('wait', 'paused', 'active');
      same([wait + paused, active], [1, 0]);
      await queue.resume();
      await until(async () => (await queue.getCompletedCount()) === before + 1, 'it goes on');

      const options = { deduplication: { id: 'one', ttl: 60_000 } };
      const one = await queue.add('plain', { n: 1 }, options);
      same((await queue.add('plain', { n: 2 }, options)).id, one.id);
      await worker.close();
      await queue.drain();
      same(await queue.count(), 0);
    },

    async limitedAndStalled() {
      const queue = open(Queue, 'limit', {});
      await queue.addBulk(Array.from({ length: 6 }, (_, n) => ({ name: 'plain', data: { n } })));
      let last;
      const begin = Date.now();
      const worker = open(Worker, 'limit', async () => (last = Date.now()), {
        concurrency: 6,
        // No worker looks for lost jobs sooner than this after another one has.
        stalledInterval: 100,
        limiter: { max: 2, duration: 200 },
      });
      await until(async () => (await queue.getCompletedCount()) === 6, 'six jobs');
      assert(last - begin >= 390, `six jobs took ${last - begin} ms`);
      await worker.close();

      // A worker puts its job off; another loses its lock, and the job is run again.
      let moved = 0;
      const token = 'mine';
      await queue.add('stalls', {});
      const dead = open(Worker, 'limit', null, { lockDuration: 500, autorun: false });
      await dead.waitUntilReady();
      const taken = await dead.getNextJob(token);
      same(taken.name, 'stalls');
      same(await taken.extendLock(token, 500), 1);
      await dead.close();
      const names = [];
      const slow = open(
        Worker,
        'limit',
        async (job, own) => {
          if (job.name === 'put off' && moved++ === 0) {
            await job.moveToDelayed(Date.now() + 20, own);
            throw new DelayedError();
          }
          if (job.name === 'too fast' && !names.includes('too fast')) {
            names.push(job.name);
            await slow.rateLimit(30);
            throw new RateLimitError();
          }
          names.push(job.name);
        },
        { stalledInterval: 100 },
      );
      await queue.add('put off', {});
      await queue.add('too fast', {});
      await until(async () => (await queue.getCompletedCount()) === 9, 'all nine');
      same(names.sort(), ['put off', 'stalls', 'too fast', 'too fast']);
    },
  };
  return Object.fromEntries(Object.entries(checks).map(([name, check]) => [name, closing(check)]));
}

const sessionChecks = {
  async sessionsInTheStore(r) {
    await withNodeRedis(r, async (client) => {
      const store = new RedisStore({ client, prefix: 'sess:', ttl: 100, scanCount: 10 });
      const cookie = { originalMaxAge: null };
      same(await store.get('nobody'), null);
      for (let n = 0; n < 50; n++) await store.set(`id:${n}`, { cookie, n });
      await client.set('mine', '1');
      same(await store.get('id:7'), { cookie, n: 7 });
      between(98, await client.ttl('sess:id:7'), 100);
      await store.touch('id:7', { cookie: { expires: new Date(Date.now() + 500_000) } });
      between(498, await client.ttl('sess:id:7'), 500);
      same(await store.length(), 50);
      same((await store.all()).map(({ n }) => n).sort((a, b) => a - b), Array.from({ length: 50 }, (_, n) => n));
      await store.destroy('id:7');
      same((await store.ids()).length, 49);
      // One that is over is not kept.
      await store.set('id:8', { cookie: { expires: new Date(Date.now() - 1_000) } });
      same(await store.get('id:8'), null);
      await store.clear();
      same([await store.length(), await store.all(), await client.get('mine')], [0, [], '1']);
    });
  },

  async sessionsOfBrowsers(r) {
    await withNodeRedis(r, async (client) => {
      const store = new RedisStore({ client, prefix: 'web:' });
      const middleware = session({ store, secret: 'a secret', resave: false, saveUninitialized: false, cookie: { maxAge: 60_000 } });
      const server = http.createServer((request, response) => {
        middleware(request, response, (error) => {
          if (error) return response.writeHead(500).end(String(error));
          if (request.url === '/leave') return request.session.destroy(() => response.end('left'));
          request.session.views = (request.session.views ?? 0) + 1;
          return response.end(`${request.session.views}`);
        });
      });
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      const ask = async (path, cookie) => {
        const response = await fetch(`http://127.0.0.1:${server.address().port}${path}`, { headers: cookie ? { cookie } : {} });
        const given = response.headers.get('set-cookie')?.split(';')[0];
        return [await response.text(), given ?? cookie];
      };
      let [views, cookie] = await ask('/');
      same(views, '1');
      for (const n of ['2', '3', '4']) {
        [views, cookie] = await ask('/', cookie);
        same(views, n);
      }
      same((await ask('/'))[0], '1');
      same(await store.length(), 2);
      const [key] = await client.keys('web:*');
      between(58, await client.ttl(key), 60);
      same((await ask('/leave', cookie))[0], 'left');
      same((await ask('/', cookie))[0], '1');
      server.closeAllConnections();
      server.close();
    });
  },
};

let failures = 0;
const names = process.argv.slice(3).filter((arg) => !arg.startsWith('--'));

async function run(title, checks, r) {
  for (const [name, check] of Object.entries(checks)) {
    if (names.length > 0 && !names.includes(name)) continue;
    await r.flushall();
    try {
      await check(r);
    } catch (error) {
      failures += 1;
      console.log(`--- ${name}, ${title}:\n${error.stack}`);
    }
  }
}

const r = new Redis(port);
await run('ioredis', commandChecks, r);
await run('Redlock', lockChecks, r);
await run('rate-limiter-flexible', limitChecks, r);
const options = { maxRetriesPerRequest: null };
await run('BullMQ on ioredis', queueChecks(() => new Redis(port, options)), r);
await run('BullMQ on node-redis', queueChecks(() => createNodeRedisClient(createClient({ url }))), r);
await run('connect-redis', sessionChecks, r);
process.exit(failures ? 1 : 0);
