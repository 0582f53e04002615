// Ours, by the same driver that the peers use.
import pg from 'pg';

const INPUTS = '{"amount": 1050, "currency": "EUR"}';

const BEGIN = {
  name: 'begin',
  text: `SELECT verdict, effect_key FROM effect.begin_effect('bench', $1, $2, $3, $4)`,
};
const COMPLETE = { name: 'complete', text: 'SELECT verdict FROM effect.complete_effect($1, $2, $3)' };
const CLAIM = { name: 'claim', text: `SELECT verdict, fencing_token FROM effect.claim_lease($1, 'bench', '1 minute')` };
const RELEASE = { name: 'release', text: 'SELECT effect.release_lease($1, $2) AS released' };

async function ask(connection, statement, ...values) {
  return (await connection.query({ ...statement, values })).rows[0];
}

function want(answer, verdict) {
  if (answer.verdict !== verdict) throw new Error(`${answer.verdict}, not ${verdict}`);
  return answer;
}

async function effect(connection, client, n) {
  const begun = want(await ask(connection, BEGIN, `peer-${n}`, INPUTS, `held-${client}`, 1), 'go');
  want(await ask(connection, COMPLETE, begun.effect_key, 1, '{"id": "ch_1"}'), 'done');
}

// One of the rows that were loaded.
async function duplicate(connection, client, n) {
  want(await ask(connection, BEGIN, String(1 + n % 1000), INPUTS, `held-${client}`, 1), 'done');
}

async function lock(connection, client) {
  const claim = want(await ask(connection, CLAIM, `free-${client}`), 'granted');
  if (!(await ask(connection, RELEASE, `free-${client}`, claim.fencing_token)).released) throw new Error('fenced');
}

export async function open(work, clients) {
  const connections = Array.from({ length: clients }, () => new pg.Client());
  await Promise.all(connections.map((connection) => connection.connect()));
  const act = { effect, duplicate, lock }[work];
  return {
    once: (client, n) => act(connections[client], client, n),
    close: () => Promise.all(connections.map((connection) => connection.end())),
  };
}
