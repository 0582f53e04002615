'use strict';
/*
 * generate.js SEED COUNT DOCUMENTS EXPECTED
 *
 * Writes COUNT JSON texts, one a line, to DOCUMENTS, and to EXPECTED what
 * effect must make of each: sha256 of the canonical text, a blank, the text.
 *
 * Documents are spelled in every way JSON allows and jsonb takes: members in any
 * order, blanks between tokens, escapes where none are needed, numbers with
 * zeros and exponents to spare.  Numbers are shortest round-trip doubles, since
 * beyond a double effect keeps the digits and RFC 8785 rounds.  No U+0000 and
 * no lone surrogates: jsonb holds neither.
 */
const crypto = require('crypto');
const fs = require('fs');
const canonicalize = require('canonicalize');

const [seed, count, documentsPath, expectedPath] = process.argv.slice(2);

/* mulberry32: small, and the same everywhere */
let state = Number(seed) >>> 0;
function random() {
  state = (state + 0x6d2b79f5) >>> 0;
  let t = state;
  t = Math.imul(t ^ (t >>> 15), t | 1);
  t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const below = (n) => Math.floor(random() * n);
const pick = (list) => list[below(list.length)];

/* Code points from every corner that sorting and escaping care about */
const RANGES = [
  [0x01, 0x1f], [0x20, 0x7f], [0x20, 0x7f], [0x20, 0x7f], [0x61, 0x7a], [0x80, 0xff],
  [0x100, 0x7ff], [0x800, 0xffff], [0xd7f0, 0xd7ff], [0xe000, 0xe010], [0xfb00, 0xffff],
  [0x10000, 0x10010], [0x1f600, 0x1f64f], [0x10fff0, 0x10ffff], [0x10000, 0x10ffff],
];
const FIXED = ['', '"', '\\', '/', '\b\f\n\r\t', '\u007f', '\u2028\u2029', 'e\u0301', '\u00e9',
  '\ufeff', '\ue000', '\ud83d\ude00', '\uffff', '1', '10', '9', 'a', 'aa', 'ab', 'b', 'A', '\u20ac'];

function codePoint() {
  for (;;) {
    const [from, to] = pick(RANGES);
    const c = from + below(to - from + 1);
    if (c < 0xd800 || c > 0xdfff) return c;
  }
}

function string() {
  if (random() < 0.25) return pick(FIXED);
  let s = '';
  for (let n = below(random() < 0.1 ? 40 : 8); n > 0; n--) s += String.fromCodePoint(codePoint());
  return s;
}

const bits = new DataView(new ArrayBuffer(8));
const NUMBERS = [0, -0, 1, -1, 0.1, 0.1 + 0.2, 1e21, 1e20, 1e-6, 1e-7, 5e-324, 1e23, 8.41e21,
  2 ** 53, 2 ** 53 - 1, 2 ** 68, 2 ** 89, Number.MAX_VALUE, Number.MIN_VALUE, 333333333.33333329,
  123456789012345680000, 999999999999999900000, 0.000001234, 1e-320, 2.2250738585072014e-308];

function number() {
  const how = below(6);
  if (how === 0) return pick(NUMBERS);
  if (how === 1) return below(2000) - 1000;
  if (how === 2) return (below(2000000) - 1000000) / 100;
  if (how === 3) return (random() - 0.5) * 10 ** (below(60) - 30);
  for (;;) {
    bits.setUint32(0, below(4294967296));
    bits.setUint32(4, below(4294967296));
    if (Number.isFinite(bits.getFloat64(0))) return bits.getFloat64(0);
  }
}

function value(depth) {
  const how = random();
  if (depth > 0 && how < 0.3) return object(depth - 1);
  if (depth > 0 && how < 0.5) return Array.from({ length: below(6) }, () => value(depth - 1));
  if (how < 0.72) return number();
  if (how < 0.94) return string();
  return pick([null, true, false]);
}

function object(depth) {
  const o = {};
  for (let n = below(random() < 0.05 ? 60 : 8); n > 0; n--) {
    const name = string();
    if (name !== '__proto__') o[name] = value(depth);
  }
  return o;
}

/* The same document in some other spelling */
const blank = () => (random() < 0.1 ? pick([' ', '  ', '\t', ' \t ']) : '');

function spellNumber(x) {
  let s = Object.is(x, -0) ? '-0' : String(x);
  if (random() < 0.7) return s;
  let [digits, exponent] = s.split('e');
  if (random() < 0.5) digits += (digits.includes('.') ? '' : '.') + '0'.repeat(1 + below(3));
  if (exponent === undefined && random() < 0.5) exponent = '0';
  return exponent === undefined ? digits : digits + pick(['e', 'E']) + exponent;
}

function spellString(s) {
  let out = '"';
  for (let i = 0; i < s.length; i++) {
    const c = s.charCodeAt(i);
    const hex = () => '\\u' + pick([(h) => h, (h) => h.toUpperCase()])(c.toString(16).padStart(4, '0'));
    const high = c >= 0xd800 && c <= 0xdbff;
    if (c < 0x20 || c === 0x22 || c === 0x5c) {
      const short = JSON.stringify(s[i]).slice(1, -1);
      out += random() < 0.5 ? hex() : short;
    } else if (c === 0x2f && random() < 0.5) out += '\\/';
    else if (high) {
      /* both halves in one form: jsonb pairs no escape with a raw byte */
      if (random() < 0.2) {
        out += hex() + '\\u' + s.charCodeAt(++i).toString(16);
      } else out += s[i] + s[++i];
    } else out += random() < 0.05 ? hex() : s[i];
  }
  return out + '"';
}

function shuffled(list) {
  for (let i = list.length - 1; i > 0; i--) {
    const j = below(i + 1);
    [list[i], list[j]] = [list[j], list[i]];
  }
  return list;
}

function spell(v) {
  const wrap = (s) => blank() + s + blank();
  if (typeof v === 'number') return wrap(spellNumber(v));
  if (typeof v === 'string') return wrap(spellString(v));
  if (v === null || typeof v !== 'object') return wrap(String(v));
  if (Array.isArray(v)) return wrap('[' + (v.map(spell).join(',') || blank()) + ']');
  const members = shuffled(Object.keys(v)).map((k) => blank() + spellString(k) + blank() + ':' + spell(v[k]));
  return wrap('{' + (members.join(',') || blank()) + '}');
}

function main() {
  const documents = fs.openSync(documentsPath, 'w');
  const expected = fs.openSync(expectedPath, 'w');
  for (let done = 0; done < Number(count);) {
    let texts = '';
    let lines = '';
    for (let n = 0; n < 1000 && done < Number(count); n++, done++) {
      const v = random() < 0.1 ? value(0) : value(4);
      const text = canonicalize(v);
      texts += spell(v) + '\n';
      lines += crypto.createHash('sha256').update(text, 'utf8').digest('hex') + ' ' + text + '\n';
    }
    fs.writeSync(documents, texts);
    fs.writeSync(expected, lines);
  }
}

main();
