// Limits on how often somebody may call an HTTP server, as middleware: by CL.THROTTLE, and by a Lua script.
//
// usage: node rate_limiter.mjs [PORT]    without PORT: that of EMBERDB_PORT, or 6379
//
// What is left of a limit is a key with a deadline. At the deadline the limit is whole again and the key is gone, so
// nothing remains of callers who never come back.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient, defineScript } from 'redis';

const PREFIX = 'example:limit:';
const HOUR_S = 3600;
const LIMIT_MS = 30_000;
// The server counts in milliseconds, from the beginning of its turns.
const CLOCK_MS = 5;

/** Allows `calls` at once, and gives them back one after the other, evenly over `periodS`: all that is one command. */
function throttled(client, { calls, periodS }) {
  return async (caller) => {
    const args = [`${PREFIX}throttle:${caller}`, calls - 1, calls, periodS].map(String);
    const [isLimited, , remaining, retryAfterS] = await client.sendCommand(['CL.THROTTLE', ...args]);
    return { isAllowed: isLimited === 0, remaining, retryAfterS };
  };
}

/** The client sends this by its hash (EVALSHA), and as a whole where the server does not know it yet. */
const countInWindow = defineScript({
  SCRIPT: `
    local calls = redis.call('INCR', KEYS[1])
    if calls == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
    return {calls, redis.call('PTTL', KEYS[1])}`,
  NUMBER_OF_KEYS: 1,
  parseCommand(parser, key, windowMs) {
    parser.pushKey(key);
    parser.push(String(windowMs));
  },
});

/**
 * Allows `calls` in each window of `periodS`, by a script: so rules of one's own are a matter of a few lines. This one
 * allows twice as much at once to somebody who calls at the end of a window and at the beginning of the next.
 */
function counted(client, { calls, periodS }) {
  return async (caller) => {
    const [count, leftMs] = await client.countInWindow(`${PREFIX}window:${caller}`, 1000 * periodS);
    return { isAllowed: count <= calls, remaining: Math.max(0, calls - count), retryAfterS: Math.ceil(leftMs / 1000) };
  };
}

/** Middleware as Express has it. */
function limit(limiter) {
  return async (request, response, next) => {
    const { isAllowed, remaining, retryAfterS } = await limiter(request.headers['x-api-key']);
    response.setHeader('RateLimit-Remaining', remaining);
    if (isAllowed) return next();
    response.writeHead(429, { 'Retry-After': retryAfterS }).end('too many requests');
  };
}

/** A server behind a limiter; `use` is given a function that calls it in somebody's name. */
async function withServer(limiter, use) {
  const middleware = limit(limiter);
  const server = createServer((request, response) => middleware(request, response, () => response.end('welcome')));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const url = `http://127.0.0.1:${server.address().port}/`;
  await use((caller) => fetch(url, { headers: { 'x-api-key': caller } }));
  server.close();
  server.closeAllConnections();
}

async function demonstrate(client, limiterOf) {
  const name = limiterOf.name;
  await withServer(limiterOf(client, { calls: 5, periodS: HOUR_S }), async (call) => {
    const responses = await Promise.all(Array.from({ length: 20 }, () => call('alice')));
    const allowed = responses.filter(({ status }) => status === 200);
    const refused = responses.filter(({ status }) => status === 429);
    assert.equal(allowed.length, 5, `${name}: so many of 20 calls at once were allowed, not 5`);
    assert.equal(refused.length, 15, `${name}: so many were refused, not the other 15`);
    const left = allowed.map(({ headers }) => Number(headers.get('ratelimit-remaining')));
    assert.deepEqual(left.sort(), [0, 1, 2, 3, 4], `${name}: two callers were told the same`);
    const waits = refused.map(({ headers }) => Number(headers.get('retry-after')));
    assert(waits.every((s) => 0 < s && s <= HOUR_S), `${name}: when to come again is wrong: ${waits}`);
    assert.equal((await call('bob')).status, 200, `${name}: one caller used up the limit of another`);
    console.log(`${name}: 5 of 20 calls at once are allowed; to be tried again in ${waits[0]} s`);
  });

  await withServer(limiterOf(client, { calls: 1, periodS: 1 }), async (call) => {
    const begin = performance.now();
    assert.equal((await call('carol')).status, 200, `${name}: the first call was refused`);
    while ((await call('carol')).status !== 200) {
      assert(performance.now() - begin < LIMIT_MS, `${name}: nothing is ever allowed again`);
      await sleep(50);
    }
    const tookMs = performance.now() - begin;
    assert(tookMs >= 1000 - CLOCK_MS, `${name}: two calls in ${tookMs} ms were allowed, not one in a second`);
    console.log(`${name}: one call a second: the next was allowed after ${Math.round(tookMs)} ms`);
  });

  for (const key of await keysOf(client)) {
    const lifeMs = await client.pTTL(key);
    assert(lifeMs !== -1, `${name}: ${key} would stay for ever`);
  }
}

async function keysOf(client) {
  const keys = [];
  for await (const some of client.scanIterator({ MATCH: `${PREFIX}*`, COUNT: 1000 })) keys.push(...some);
  return keys;
}

async function cleanUp(client) {
  for (const key of await keysOf(client)) await client.del(key);
}

const port = Number(process.argv[2] ?? process.env.EMBERDB_PORT ?? 6379);
const client = await createClient({ url: `redis://127.0.0.1:${port}`, scripts: { countInWindow } }).connect();
try {
  // A run that was interrupted may have left something.
  await cleanUp(client);
  for (const limiterOf of [throttled, counted]) await demonstrate(client, limiterOf);
} finally {
  await cleanUp(client);
  client.destroy();
}
