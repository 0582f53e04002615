// node run.js SIDE/WORK CLIENTS SECONDS SEED [prepare]
//
// One work of one peer, by so many clients in closed loops, for so long.  Prints what
// pgbench would print, so that bench/run reads both alike.  PG* variables name the server.
//
// A module exports open(work, clients, prepare), which answers { once(client, n), close() }:
// once does the work one time and throws where the outcome is not the wanted one.  With
// prepare it first makes the tables and what the duplicates are duplicates of.

const WARM_UP = 0.5;    // seconds: node compiles what it runs often

const [what, clients, seconds, seed, prepare] = process.argv.slice(2);
const [side, work] = what.split('/');

// Names that no other measurement uses.
let n = Number(seed) * 1e7;

async function loop(peer, client, until, count) {
  while (performance.now() < until) {
    await peer.once(client, n++);
    count.done++;
  }
}

async function runFor(peer, duration) {
  const count = { done: 0 };
  const began = performance.now();
  const each = Array.from({ length: Number(clients) }, (_, client) =>
    loop(peer, client, began + duration * 1000, count));
  await Promise.all(each);
  return { done: count.done, seconds: (performance.now() - began) / 1000 };
}

const { open } = await import(`./${side}.js`);
const peer = await open(work, Number(clients), prepare === 'prepare');
const warm = await runFor(peer, WARM_UP);
const timed = await runFor(peer, Number(seconds));
await peer.close();

console.log(`number of transactions actually processed: ${warm.done + timed.done}`);
console.log(`latency average = ${(timed.seconds * 1000 * clients / timed.done).toFixed(3)} ms`);
console.log(`tps = ${(timed.done / timed.seconds).toFixed(3)}`);
process.exit(0);
