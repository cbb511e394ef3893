// Texts for parsePartialJson: documents cut anywhere, and odd ones.
import { randomJsonTexts } from "./random.mjs";

const DOCUMENTS = ['{"city":"Paris","n":[1,2.5,null],"ok":true}', '[{"a":"\\u00e9\\n"},-1e5,[[]],{}]', '"plain \\"text\\" 😀"', " [ 1 , { \"k\" : false } ] "];
const ODD_TEXTS = [
  "", " ", "x", "NaN", "[NaN", "Infinity", "-Infinity", "undefined", "-", "-0", "01", "1.", "1e", "1e5", "1E+", "+1", ".5", "1e999", "[1e999", "9007199254740991", "123456789012345678901234567890",
  "nul", "null", "nullx", "t", "tr", "trux", "f", "fals", "false]", "[t", "[tr,", '{"a":t', '{"a":trx', "[1 2", "[1x", "[1,", "[1,,2", "[,", "[]]", "{}}", "{,", "{a", "{1",
  '{"a"', '{"a":', '{"a" 1', '{"a":1,', '{"a":1,}', '{"a":1 "b":2', '{"a":1]', "[1}", '{"a\\"b":1', '{"a\\', '"a\\', '"a\\u', '"a\\u12', '"a\\u12zz', '"a\\u00e9', '"a\\x', '"tab\t', '"line\n', '"nul\u0000', '"\u007f', "'a'", "// c", "[1] 2", "[1]x", "\ufeff1", "\u00a01",
  '{"__proto__":1}', '{"__proto__', '{"__proto__"', '{"a":{"__proto__":{"x":1}}}', '{"\\u005f_proto__":1}', '{"x":"__proto__"}', '["__proto__"]', '{"constructor":1}', '{"constructor":{"prototype":1}}', '{"constructor":{"prototype"', '{"constructor":[{"prototype":1}]}', '{"constructor":{"a":{"constructor":{"prototype":null}}}}',
  '{"a":1,"a":2}', '{"constructor":{"prototype":1},"constructor":1}', '{"__proto__":1,"a":2', '{"":1}', '"\ud83d', '"\ude00"', '"\ud83d\\ude00"', '"\\ud83d\ude00"', '"\\ud83d\\ude00"', '["\\ud83d', '{"\ud83d\\ude00":1}', '{"a":"\u2028"}', "[".repeat(30), "[".repeat(30) + "1" + "]".repeat(29), '{"a":'.repeat(20), '{"a":['.repeat(10) + '"x',
];

const prefixes = DOCUMENTS.flatMap((text) => Array.from({ length: text.length + 1 }, (_, end) => text.slice(0, end)));
export const texts = [...new Set([...ODD_TEXTS, ...prefixes, ...randomJsonTexts(7, 220)])];
