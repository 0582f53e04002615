// pg-boss: an effect is a job with a singleton key, which its own index keeps unique for half a
// day at most, also after it is completed.  Sent, fetched, completed: its documented three
// steps, taken directly, since its worker polls twice a second at most.
import PgBoss from 'pg-boss';

const HALF_A_DAY = 43200;
const KNOWN = 1000;
const MOST_CLIENTS = 64;

// Which of the jobs sent a fetch is given does not matter here, but it must be given one.
async function finishOne(boss, queue) {
  for (;;) {
    const [job] = await boss.fetch(queue);
    if (job) return boss.complete(queue, job.id, { id: 'ch_1' });
  }
}

async function effect(boss, client, n) {
  const id = await boss.send('effect', { n, amount: 1050 }, { singletonKey: `peer-${n}`, singletonSeconds: HALF_A_DAY });
  if (id === null) throw new Error('taken for a duplicate');
  await finishOne(boss, 'effect');
}

async function duplicate(boss, client, n) {
  const id = await boss.send('known', { n, amount: 1050 },
    { singletonKey: `known-${n % KNOWN}`, singletonSeconds: HALF_A_DAY });
  if (id !== null) throw new Error('not seen as a duplicate');
}

// One active job at most in a queue of this policy.
async function lock(boss, client) {
  await boss.send(`lock-${client}`, {});
  await finishOne(boss, `lock-${client}`);
}

async function makeKnown(boss) {
  await boss.createQueue('effect');
  await boss.createQueue('known');
  for (let i = 0; i < MOST_CLIENTS; i++) await boss.createQueue(`lock-${i}`, { policy: 'singleton' });
  for (let i = 0; i < KNOWN; i++) {
    await boss.send('known', { n: i, amount: 1050 }, { singletonKey: `known-${i}`, singletonSeconds: HALF_A_DAY });
  }
}

export async function open(work, clients, prepare) {
  const { PGHOST: host, PGUSER: user, PGDATABASE: database } = process.env;
  // Its housekeeping would cost, and is not what is compared.
  const boss = new PgBoss({ host, user, database, max: clients, supervise: false, schedule: false });
  boss.on('error', (error) => { throw error; });
  await boss.start();
  if (prepare) await makeKnown(boss);
  const act = { effect, duplicate, lock }[work];
  return {
    once: (client, n) => act(boss, client, n),
    close: () => boss.stop({ graceful: false }),
  };
}
