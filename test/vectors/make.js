'use strict';
/*
 * make.js: writes canonical.jsonl and key.jsonl beside itself, without effect.
 *
 *   (cd test/canonical && npm ci) && node test/vectors/make.js
 *
 * The bytes in those files are a promise: every key in the field rests on them.
 * Vectors may be added here; a change to one that exists is refused, since it
 * would rotate keys.
 *
 * canonical.jsonl: the canonical text of a document within a double's reach
 * comes from the npm package canonicalize; where effect keeps digits that a
 * double loses, it stands here by hand.  key.jsonl: message, the text that is
 * hashed, stands here by hand, escapes and all.
 */
const crypto = require('crypto');
const fs = require('fs');
const path = require('path');
const canonicalize = require('../canonical/node_modules/canonicalize');

const sha256 = (text) => crypto.createHash('sha256').update(text, 'utf8').digest('hex');

/* Documents that RFC 8785 and effect agree on */
const agreed = [
  /* RFC 8785, 3.2.2 and 3.2.3; its 333333333.33333329 is below, with its own digits */
  String.raw`{"numbers": [333333333.3333333, 1E30, 4.50, 2e-3, 0.000000000000000000000000001], "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}`,
  String.raw`{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "Latin Small Letter O With Diaeresis"}`,
  /* RFC 8785, appendix B, in one array */
  '[0, -0, 5e-324, -5e-324, 1.7976931348623157e+308, -1.7976931348623157e+308, 9007199254740992, -9007199254740992, 295147905179352830000, 9.999999999999997e+22, 1e+23, 1.0000000000000001e+23, 999999999999999700000, 999999999999999900000, 1e+21, 9.999999999999997e-7, 0.000001, 333333333.3333332, 333333333.33333325, 333333333.3333333, 333333333.3333334, 333333333.33333343, -0.0000033333333333333333, 1424953923781206.2]',
  /* one number, many spellings */
  '1', '1.0', '1.00', '1e0', '10e-1', '{"amount":1}', '{"amount":1.0}', '{"amount":1.00}', '{"amount":1e0}',
  '0', '-0', '0.0', '-0.0', '0e10', '100', '1e2', '1E+2', '100.000', '0.000001', '1e-6', '1.0e-06',
  '1.01', '1.010', '{"amount":1.01}', '{"amount":1.010}',
  '0.30000000000000004', '0.1', '0.2', '-1.5', '1e20', '1e21', '1e-7', '123456789012345680000',
  '1234567890123456800000', '0.0000012', '0.00000012',
  /* strings */
  '""', '"a"', String.raw`"\u007f\u0080\u2028\u2029\ufeff"`, String.raw`"\/ / \\ \""`,
  '[' + Array.from({ length: 31 }, (_, i) => '"\\u' + (i + 1).toString(16).padStart(4, '0') + '"').join(',') + ']',
  '{' + Array.from({ length: 31 }, (_, i) => '"\\u' + (31 - i).toString(16).padStart(4, '0') + '":' + i).join(',') + '}',
  String.raw`"\b\t\n\f\r"`, String.raw`"\uD83D\uDE00"`,
  /* UTF-16 order is not code point order */
  String.raw`{"\ue000": 1, "\ud83d\ude00": 2}`, String.raw`{"\uffff": 1, "\ud800\udc00": 2, "\ud7ff": 3}`,
  String.raw`{"a\ue000": 1, "a\ud83d\ude00": 2, "a": 3, "": 4}`,
  '{"b": 1, "aa": 2, "a": 3, "B": 4, "10": 5, "9": 6}',
  /* structure */
  '{}', '[]', '[[]]', '[{}]', '{"a": {}}', '{"a": []}', 'null', 'true', 'false',
  '{"stops":["A","B"]}', '{"stops":["B","A"]}', '["a","a"]', '["a"]', '[[1,2],[3]]', '[[1],[2,3]]',
  '[{"to":"x","amt":1},{"to":"y","amt":2}]', '[{"amt":1,"to":"x"},{"amt":2,"to":"y"}]',
  '[[3, [2, [1]]], {"z": [1, 2], "y": {"d": 1, "c": [true, null]}}]',
  '{"data":{"b":1,"aa":2},"id":"7"}', '{ "id" : "7" , "data" : { "aa" : 2 , "b" : 1 } }',
  /* composed and decomposed: two names, on purpose */
  String.raw`{"to":"Caf\u00e9"}`, String.raw`{"to":"Cafe\u0301"}`, String.raw`{"Caf\u00e9":1,"Cafe\u0301":2}`,
  String.raw`"\u00c5"`, String.raw`"\u212b"`, String.raw`"A\u030a"`, String.raw`"\ud55c"`, String.raw`"\u1112\u1161\u11ab"`,
  String.raw`"\ufb01"`, '"fi"', String.raw`"\u2460"`, String.raw`"\u0130"`, '"i"', String.raw`"\u00df"`, '"ss"', '"A@x.org"', '"a@x.org"',
];

/* Documents whose numbers a double would change: document, canonical text */
const exact = [
  ['{"id":9007199254740993}', '{"id":9007199254740993}'],
  ['{"id":9007199254740993.0}', '{"id":9007199254740993}'],
  ['{"id":18446744073709551615}', '{"id":18446744073709551615}'],
  ['{"id":18446744073709551614}', '{"id":18446744073709551614}'],
  ['{"id":295147905179352825856}', '{"id":295147905179352825856}'],
  ['1234567890123456789012', '1.234567890123456789012e+21'],
  ['-123456789012345678901.25', '-123456789012345678901.25'],
  ['333333333.33333329', '333333333.33333329'],
  ['0.10000000000000001', '0.10000000000000001'],
  ['0.100000000000000005551115123125783', '0.100000000000000005551115123125783'],
  ['0.00000010000000000000000001', '1.0000000000000000001e-7'],
  ['1e400', '1e+400'],
  ['-1.50e400', '-1.5e+400'],
  ['1' + '0'.repeat(400), '1e+400'],
  ['1e-400', '1e-400'],
  ['[1e131071, 1e-16383]', '[1e+131071,1e-16383]'],
  ['{"9007199254740992":1,"9007199254740993":2}', '{"9007199254740992":1,"9007199254740993":2}'],
];

const none = sha256('{}');
const ten = sha256('{"amount":10}');

/* action, target, input_digest, and the text that is hashed */
const keys = [
  ['charge', 'order-7', ten, `charge|order-7|${ten}`],
  ['refund', 'order-7', ten, `refund|order-7|${ten}`],
  ['charge', 'order-7', none, `charge|order-7|${none}`],
  ['a', 'b', 'c', 'a|b|c'],
  ['a|b', 'c', 'd', String.raw`a\|b|c|d`],
  ['a', 'b|c', 'd', String.raw`a|b\|c|d`],
  ['a', 'b', 'c|d', String.raw`a|b|c\|d`],
  ['a\\', 'b', 'c', String.raw`a\\|b|c`],
  ['a\\|b', 'c', 'd', String.raw`a\\\|b|c|d`],
  ['a', '\\|b', 'c', String.raw`a|\\\|b|c`],
  ['\\', '\\', '\\', String.raw`\\|\\|\\`],
  ['|', '|', '|', String.raw`\||\||\|`],
  ['refund', 'a|b', none, String.raw`refund|a\|b|${none}`],
  ['refund|a', 'b', none, String.raw`refund\|a|b|${none}`],
  ['a\u001f', 'b', none, `a\u001f|b|${none}`],
  ['a', '\u001fb', none, `a|\u001fb|${none}`],
  ['mail', 'Caf\u00e9', none, `mail|Caf\u00e9|${none}`],
  ['mail', 'Cafe\u0301', none, `mail|Cafe\u0301|${none}`],
  ['mail', '\ud83d\ude00', none, `mail|\ud83d\ude00|${none}`],
  [' a ', ' b', 'c ', ' a | b|c '],
];

/* uuid's text form of the first 128 bits */
function uuid(message) {
  return sha256(message).slice(0, 32).replace(/(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

/* ASCII only, so that no editor can normalise a name */
function line(o) {
  return JSON.stringify(o).replace(/[\u007f-\uffff]/g, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
}

function write(name, vectors) {
  const file = path.join(__dirname, name);
  const lines = vectors.map(line);
  const old = fs.existsSync(file) ? fs.readFileSync(file, 'utf8').split('\n').slice(0, -1) : [];
  const lost = old.filter((l) => !lines.includes(l));
  if (lost.length > 0) throw new Error(`${name}: these vectors would change:\n${lost.join('\n')}`);
  fs.writeFileSync(file, lines.join('\n') + '\n');
  console.log(`${name}: ${lines.length} vectors, ${lines.length - old.length} new`);
}

const vector = (document, canonical) => ({ document, canonical, digest: sha256(canonical) });
write('canonical.jsonl', [
  ...agreed.map((document) => vector(document, canonicalize(JSON.parse(document)))),
  ...exact.map(([document, canonical]) => vector(document, canonical)),
]);
write('key.jsonl', keys.map(([action, target, digest, message]) => ({ action, target, digest, message, key: uuid(message) })));
