// Packages of which many processes share one server: Socket.IO with its three ways to reach sockets of other processes
// (messages, messages to shards, a stream); redis-semaphore.
//
// usage: node rooms.mjs PORT [--newer] [CHECK...]    --newer: nothing here is newer than redis-server 7.0
// Every check runs, on an empty server; the exit status says whether all succeeded.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { createAdapter, createShardedAdapter } from '@socket.io/redis-adapter';
import { createAdapter as createStreamAdapter } from '@socket.io/redis-streams-adapter';
import { Redis } from 'ioredis';
import { LostLockError, Mutex, Semaphore } from 'redis-semaphore';
import { Server } from 'socket.io';
import { io } from 'socket.io-client';

const LIMIT_MS = 20_000;
const port = Number(process.argv[2]);
const same = assert.deepEqual;

async function until(condition, what) {
  const end = Date.now() + LIMIT_MS;
  while (!(await condition())) {
    assert(Date.now() < end, `never: ${what}`);
    await sleep(5);
  }
}

/** A connection that has done asking about the server: one that listens to channels may ask nothing more. */
async function connected() {
  const client = new Redis(port);
  await once(client, 'ready');
  return client;
}

/** Two processes of Socket.IO, and a socket at each, in one room; `adapter` is how the processes reach each other. */
async function withRooms(adapter, use) {
  const parts = [];
  for (const name of ['one', 'two']) {
    const clients = [await connected(), await connected()];
    const web = http.createServer();
    const server = new Server(web, { adapter: adapter(...clients), connectionStateRecovery: {} });
    server.on('connection', (socket) => socket.join(['room', name]));
    await once(web.listen(0), 'listening');
    const socket = io(`http://127.0.0.1:${web.address().port}`, { transports: ['websocket'] });
    const heard = [];
    socket.on('said', (text) => heard.push(text));
    parts.push({ clients, server, socket, heard });
  }
  await until(() => parts.every(({ socket }) => socket.connected), 'the sockets are connected');
  // They know of each other, and of the rooms.
  const known = async ({ server }) => (await server.in('room').fetchSockets()).length === parts.length;
  await until(async () => (await Promise.all(parts.map(known))).every(Boolean), 'both sockets are known');
  await use(...parts);
  for (const { clients, server, socket } of parts) {
    socket.close();
    await server.close();
    // Sockets that end leave a session behind: QUIT is answered when that is written, before the next check's FLUSHALL.
    await Promise.all(clients.map((client) => client.quit()));
  }
}

async function messagesBetweenRooms(one, two) {
  one.server.emit('said', 'all');
  two.server.to('room').emit('said', 'room');
  one.server.to('two').emit('said', 'two');
  two.server.to('room').except('two').emit('said', 'not two');
  await until(() => one.heard.length === 3 && two.heard.length === 3, 'all is heard');
  same(one.heard.sort(), ['all', 'not two', 'room']);
  same(two.heard.sort(), ['all', 'room', 'two']);
  // A question to all sockets, and one to the other process.
  for (const { socket, server } of [one, two]) {
    socket.on('asked', (n, answer) => answer(n + 1));
    server.on('asked', (n, answer) => answer(2 * n));
  }
  same(await one.server.timeout(LIMIT_MS).emitWithAck('asked', 1), [2, 2]);
  same(await one.server.serverSideEmitWithAck('asked', 21), [42]);
  // What one process says of sockets holds at the other.
  one.server.in('two').socketsJoin('late');
  await until(async () => (await two.server.in('late').fetchSockets()).length === 1, 'the socket has joined');
  one.server.in('late').disconnectSockets();
  await until(() => two.socket.disconnected, 'the socket of the other process is ended');
  same(one.socket.connected, true);
}

const roomChecks = {
  messages: () => withRooms(createAdapter, messagesBetweenRooms),
  messagesToShards: () => withRooms(createShardedAdapter, messagesBetweenRooms),
  aStream: () => withRooms((client) => createStreamAdapter(client, { heartbeatInterval: 100 }), messagesBetweenRooms),
};

const lockChecks = {
  async aSemaphoreForMany(r) {
    const options = { lockTimeout: 5_000, retryInterval: 2, acquireTimeout: LIMIT_MS };
    let [inside, most] = [0, 0];
    const work = async () => {
      const semaphore = new Semaphore(r, 'three', 3, options);
      for (let round = 0; round < 5; round++) {
        await semaphore.acquire();
        most = Math.max(most, (inside += 1));
        await sleep(1);
        inside -= 1;
        await semaphore.release();
      }
    };
    await Promise.all(Array.from({ length: 8 }, work));
    same(most, 3);
    same(await r.dbsize(), 0);
  },

  async aMutexIsExtendedAndLost(r) {
    const other = new Mutex(r, 'one', { acquireAttemptsLimit: 1, retryInterval: 1 });
    let lost;
    const mutex = new Mutex(r, 'one', { lockTimeout: 1_000, refreshInterval: 20, onLockLost: (error) => (lost = error) });
    await mutex.acquire();
    const end = Date.now() + 1_500;
    while (Date.now() < end) {
      same(await other.tryAcquire(), false);
      await sleep(10);
    }
    await r.set('mutex:one', 'of another');
    await until(() => lost, 'it is told that the lock is lost');
    assert(lost instanceof LostLockError);
    same(await r.get('mutex:one'), 'of another');
    await r.pexpire('mutex:one', 20);
    await until(() => other.tryAcquire(), 'the lock of another ends');
    await other.release();
    same(await r.dbsize(), 0);
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

const r = await connected();
await run('Socket.IO', roomChecks, r);
await run('redis-semaphore', lockChecks, r);
process.exit(failures ? 1 : 0);
