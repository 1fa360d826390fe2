// ioredis and node-redis against a server: every family of commands, and clients that wait.
//
// usage: node check.mjs PORT [--newer] [CHECK...]    --newer: also what redis-server 7.0 does not have
// Every check runs, on an empty server; the exit status says whether all succeeded.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { BasicClientSideCache, createClient } from 'redis';

const LIMIT_MS = 10_000;
const port = Number(process.argv[2]);
// Under TLS where the environment names the authority whose servers are trusted.
const tls = process.env.CHECK_CA ? { ca: readFileSync(process.env.CHECK_CA), servername: 'localhost' } : undefined;
const url = `${tls ? 'rediss' : 'redis'}://127.0.0.1:${port}`;
const socket = tls && { tls: true, ...tls };
const same = assert.deepEqual;

/** What ioredis is asked: it gives replies nearly as they come. */
const ioredisChecks = {
  async lists(r) {
    same(await r.rpush('l', 'a', 'b', 'c', 'b'), 4);
    same(await r.lrange('l', 0, -1), ['a', 'b', 'c', 'b']);
    same(await r.lpos('l', 'b', 'RANK', -1, 'COUNT', 0), [3, 1]);
    same(await r.linsert('l', 'BEFORE', 'a', 'x'), 5);
    same(await r.lmpop(2, 'nothing', 'l', 'RIGHT', 'COUNT', 2), ['l', ['b', 'c']]);
    same(await r.lmove('l', 'm', 'LEFT', 'LEFT'), 'x');
    same(await r.lpop('l', 9), ['a', 'b']);
    same(await r.lpop('l'), null);
    await assert.rejects(r.hget('m', 'f'), /^ReplyError: WRONGTYPE/);
    const binary = Buffer.from([0, 255, 13, 10]);
    await r.rpush('binary', binary);
    same(await r.lpopBuffer('binary'), binary);
  },

  async sets(r) {
    same(await r.sadd('s', 1, 2, 3), 3);
    same((await r.smembers('s')).sort(), ['1', '2', '3']);
    same(await r.smismember('s', 1, 9), [1, 0]);
    same(await r.sunionstore('u', 's', 'nothing'), 3);
    same(await r.sintercard(2, 's', 'u', 'LIMIT', 2), 2);
    same((await r.spop('u', 5)).sort(), ['1', '2', '3']);
    await r.sadd('big', ...Array(2000).keys());
    const found = new Set();
    for await (const members of r.sscanStream('big', { count: 100 })) members.forEach((member) => found.add(member));
    same(found.size, 2000);
  },

  async hashes(r) {
    same(await r.hset('h', { a: 1, b: 2 }), 2);
    same({ ...(await r.hgetall('h')) }, { a: '1', b: '2' });
    same(await r.hmget('h', 'a', 'nothing'), ['1', null]);
    same(await r.hincrbyfloat('h', 'a', 0.5), '1.5');
    same(await r.hrandfield('h', -5).then((fields) => fields.length), 5);
    await assert.rejects(r.hincrby('h', 'a', 1), /hash value is not an integer/);
    await r.hset('big', Object.fromEntries([...Array(2000).keys()].map((n) => [`field:${n}`, n])));
    let count = 0;
    for await (const pairs of r.hscanStream('big')) count += pairs.length / 2;
    same(count, 2000);
  },

  async sortedSets(r) {
    same(await r.zadd('z', 1, 'a', 2.5, 'b', '-inf', 'c'), 3);
    same(await r.zadd('z', 'GT', 'CH', 3, 'a'), 1);
    same(await r.zrange('z', 0, -1, 'WITHSCORES'), ['c', '-inf', 'b', '2.5', 'a', '3']);
    same(await r.zrange('z', '+inf', '(2.5', 'BYSCORE', 'REV'), ['a']);
    same(await r.zincrby('z', 0.25, 'a'), '3.25');
    same(await r.zunionstore('u', 2, 'z', 'nothing', 'WEIGHTS', 2, 1), 3);
    same(await r.zpopmax('u'), ['a', '6.5']);
    same(await r.zmpop(1, 'u', 'MIN', 'COUNT', 5), ['u', [['c', '-inf'], ['b', '5']]]);
    same(await r.zmscore('z', 'b', 'nothing'), ['2.5', null]);
  },

  async streams(r) {
    for (const n of [1, 2, 3]) same(await r.xadd('s', `${n}-0`, 'n', n), `${n}-0`);
    same(await r.xrange('s', '2-0', '+'), [['2-0', ['n', '2']], ['3-0', ['n', '3']]]);
    same(await r.xgroup('CREATE', 's', 'g', '0'), 'OK');
    const read = await r.xreadgroup('GROUP', 'g', 'alice', 'COUNT', 2, 'STREAMS', 's', '>');
    same(read, [['s', [['1-0', ['n', '1']], ['2-0', ['n', '2']]]]]);
    same(await r.xack('s', 'g', '1-0'), 1);
    same(await r.xpending('s', 'g'), [1, '2-0', '2-0', [['alice', '1']]]);
    same(await r.xautoclaim('s', 'g', 'bob', 0, '0-0', 'JUSTID'), ['0-0', ['2-0'], []]);
    same(await r.xtrim('s', 'MINID', '3-0'), 2);
    same(await r.xlen('s'), 1);
  },

  async bitsAndHyperLogLogs(r) {
    same(await r.setbit('b', 7, 1), 0);
    same(await r.bitcount('b'), 1);
    same(await r.bitfield('b', 'GET', 'u8', 0, 'OVERFLOW', 'FAIL', 'INCRBY', 'u2', 100, 4), [1, null]);
    same(await r.pfadd('p', 'a', 'b', 'c'), 1);
    same(await r.pfmerge('q', 'p'), 'OK');
    same(await r.pfcount('p', 'q'), 3);
  },

  async positions(r) {
    same(await r.geoadd('g', 13.361389, 38.115556, 'Palermo', 15.087269, 37.502669, 'Catania'), 2);
    same(await r.geodist('g', 'Palermo', 'Catania', 'km'), '166.2742');
    same(await r.geosearch('g', 'FROMLONLAT', 15, 37, 'BYRADIUS', 200, 'km', 'ASC'), ['Catania', 'Palermo']);
    same(await r.geohash('g', 'Palermo', 'nowhere'), ['sqc8b49rny0', null]);
  },

  async generic(r) {
    await r.rpush('l', 3, 1, 2);
    same(await r.sort('l', 'DESC'), ['3', '2', '1']);
    same(await r.copy('l', 'm'), 1);
    same(await r.restore('n', 0, await r.dumpBuffer('l')), 'OK');
    same(await r.lrange('n', 0, -1), ['3', '1', '2']);
    const replies = await r.multi().lpop('l').sadd('s', 'x').hset('h', 'f', 1).hgetall('h').exec();
    same(JSON.stringify(replies), '[[null,"3"],[null,1],[null,1],[null,{"f":"1"}]]');
  },

  async waitingInOrder(r) {
    const clients = [1, 2, 3].map(() => r.duplicate());
    const served = [];
    const waits = [];
    for (const [n, client] of clients.entries()) {
      waits.push(client.blpop('a', 'b', 0).then((popped) => served.push([n, ...popped])));
      await waiting(r, n + 1);
    }
    for (const n of [0, 1, 2]) {
      await r.rpush('b', n);
      await waits[n];
      same(served.at(-1), [n, 'b', String(n)]);
    }
    clients.forEach((client) => client.disconnect());
  },

  async waitingEnds(r) {
    const [waits, other] = [r.duplicate(), r.duplicate()];
    same(await waits.bzpopmin('z', 0.05), null);
    same(await waits.blmove('a', 'b', 'LEFT', 'RIGHT', 0.05), null);
    const popped = waits.blmpop(0, 2, 'a', 'b', 'LEFT', 'COUNT', 2);
    await waiting(r, 1);
    const gone = other.blpop('a', 0).catch((error) => error);
    await waiting(r, 2);
    other.disconnect();
    await waiting(r, 1);
    await r.rpush('b', 1, 2, 3);
    same(await popped, ['b', ['1', '2']]);
    assert((await gone) instanceof Error);
    const id = await waits.client('ID');
    const unblocked = waits.xread('BLOCK', 0, 'STREAMS', 's', '$').catch((error) => error);
    await waiting(r, 1);
    same(await r.client('UNBLOCK', id, 'ERROR'), 1);
    assert.match(String(await unblocked), /UNBLOCKED/);
    waits.disconnect();
  },
};

/** What node-redis is asked, in both protocols: it gives replies a form of its own. */
const nodeRedisChecks = {
  async collections(r) {
    same(await r.rPush('l', ['a', 'b', 'c']), 3);
    same(await r.lPosCount('l', 'b', 0), [1]);
    same(await r.lmPop(['nothing', 'l'], 'RIGHT', { COUNT: 2 }), ['l', ['c', 'b']]);
    same(await r.sAdd('s', ['1', '2']), 2);
    same([...(await r.sMembers('s'))].sort(), ['1', '2']);
    same(await r.hSet('h', { a: 1, b: 2 }), 2);
    same({ ...(await r.hGetAll('h')) }, { a: '1', b: '2' });
    same(await r.hRandFieldCountWithValues('h', 1).then((fields) => fields.length), 1);
    same(await r.zAdd('z', [{ score: 1, value: 'a' }, { score: 2.5, value: 'b' }]), 2);
    same(await r.zRangeWithScores('z', 0, -1), [{ value: 'a', score: 1 }, { value: 'b', score: 2.5 }]);
    same(await r.zPopMax('z'), { value: 'b', score: 2.5 });
    same(await r.zRandMemberCountWithScores('z', 1), [{ value: 'a', score: 1 }]);
    same(await r.zmScore('z', ['a', 'nothing']), [1, null]);
  },

  async streams(r) {
    same(await r.xAdd('s', '1-0', { n: '1' }), '1-0');
    same(await r.xGroupCreate('s', 'g', '0'), 'OK');
    // The form that it gives this reply in RESP3 is not settled.
    assert.match(JSON.stringify(await r.xReadGroup('g', 'alice', [{ key: 's', id: '>' }])), /"1-0"/);
    same((await r.xPending('s', 'g')).pending, 1);
    same((await r.xInfoStream('s')).length, 1);
    same((await r.xInfoGroups('s'))[0].lag, 0);
    same((await r.xAutoClaim('s', 'g', 'bob', 0, '0-0')).messages.length, 1);
  },

  async positionsAndSort(r) {
    same(await r.geoAdd('g', { longitude: 13.361389, latitude: 38.115556, member: 'Palermo' }), 1);
    const found = await r.geoSearchWith('g', 'Palermo', { radius: 1, unit: 'km' }, ['WITHDIST']);
    same(found.map((place) => [place.member, Number(place.distance)]), [['Palermo', 0]]);
    await r.rPush('l', ['3', '1', '2']);
    same(await r.sort('l', { DIRECTION: 'DESC' }), ['3', '2', '1']);
  },

  async transactions(r) {
    const replies = await r.multi().rPush('l', 'a').hSet('h', 'f', 'v').hGetAll('h').zScore('z', 'nobody').exec();
    same(JSON.stringify(replies), '[1,1,{"f":"v"},null]');
  },

  async waiting(r) {
    const own = await r.duplicate().connect();
    const popped = own.blPop(['a', 'b'], 0);
    await waiting(r, 1);
    await r.rPush('b', 'x');
    same({ ...(await popped) }, { key: 'b', element: 'x' });
    const lowest = own.bzPopMin('z', 0);
    await waiting(r, 1);
    await r.zAdd('z', { score: 1.5, value: 'm' });
    same({ ...(await lowest) }, { key: 'z', value: 'm', score: 1.5 });
    same(await own.blPop('a', 0.05), null);
    own.destroy();
  },
};

const newerChecks = {
  async deadlinesOfFields(r) {
    await r.hSet('h', { a: '1', b: '2' });
    same(await r.hExpire('h', ['a', 'nothing'], 100), [1, -2]);
    same(await r.hTTL('h', ['a', 'b', 'nothing']), [100, -1, -2]);
    same(await r.hPersist('h', 'a'), [1]);
    same(await r.hGetDel('h', ['a', 'nothing']), ['1', null]);
  },
};

/** Its cache, which speaks RESP3. */
const cacheChecks = {
  async aCache(r) {
    const cache = new BasicClientSideCache({ ttl: 0, maxEntries: 1000, evictPolicy: 'LRU', recordStats: true });
    const cached = await createClient({ url, socket, RESP: 3, clientSideCache: cache }).connect();
    const becomes = async (key, value) => {
      const end = Date.now() + LIMIT_MS;
      while ((await cached.get(key)) !== value) {
        assert(Date.now() < end, `${key} never becomes ${value}`);
        await sleep(5);
      }
    };
    await r.mSet({ a: '1', b: '2' });
    same(await cached.get('a'), '1');
    same(await cached.get('a'), '1');
    same(await cached.mGet(['a', 'b']), ['1', '2']);
    same(cache.stats().hitCount, 1);
    await r.set('a', '5');
    await becomes('a', '5');
    await r.pExpire('b', 30);
    await becomes('b', null);
    await r.flushAll();
    await becomes('a', null);
    const keys = Array.from({ length: 50 }, (_, n) => `k${n}`);
    for (let n = 0; n < 20; n++) {
      await Promise.all([...keys.map((key) => cached.get(key)), ...keys.map((key) => r.set(key, `${n}`))]);
    }
    await Promise.all(keys.map((key) => becomes(key, '19')));
    cached.destroy();
  },
};

/** Waits until so many clients wait. */
async function waiting(r, count) {
  const end = Date.now() + LIMIT_MS;
  while (!(await r.info('clients')).includes(`blocked_clients:${count}\r\n`)) {
    assert(Date.now() < end, `there are never ${count} clients that wait`);
    await sleep(5);
  }
}

let failures = 0;

async function run(title, checks, r, flush) {
  const names = process.argv.slice(3).filter((arg) => !arg.startsWith('--'));
  for (const [name, check] of Object.entries(checks)) {
    if (names.length > 0 && !names.includes(name)) continue;
    await flush();
    try {
      await check(r);
    } catch (error) {
      failures += 1;
      console.log(`--- ${name}, ${title}:\n${error.stack}`);
    }
  }
}

const ioredis = new Redis(port, { tls });
await run('ioredis', ioredisChecks, ioredis, () => ioredis.flushall());
ioredis.disconnect();
for (const RESP of [2, 3]) {
  const client = await createClient({ url, socket, RESP }).connect();
  const newer = process.argv.includes('--newer') ? newerChecks : {};
  await run(`node-redis, RESP${RESP}`, { ...nodeRedisChecks, ...(RESP === 3 ? cacheChecks : {}), ...newer }, client, () => client.flushAll());
  client.destroy();
}
process.exit(failures ? 1 : 0);
