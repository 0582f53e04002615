'use strict';
/*
 * compare.js DOCUMENTS EXPECTED ACTUAL COUNT
 *
 * Compares line by line, shows the first few differences, prints the verdict.
 * A short file counts as differences: silence is no agreement.
 */
const fs = require('fs');

const [documents, expected, actual] = process.argv.slice(2, 5)
  .map((path) => fs.readFileSync(path, 'utf8').split('\n').slice(0, -1));
const count = Number(process.argv[5]);
let differences = 0;

for (let i = 0; i < Math.max(count, expected.length, actual.length); i++) {
  if (expected[i] !== undefined && expected[i] === actual[i]) continue;
  if (differences++ < 5) {
    console.log(`document ${i + 1}: ${documents[i]}\n  expected: ${expected[i]}\n  actual:   ${actual[i]}`);
  }
}
console.log(`${expected.length} documents, ${differences} differences`);
process.exitCode = differences === 0 ? 0 : 1;
