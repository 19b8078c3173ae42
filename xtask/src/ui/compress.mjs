// Writes NAME.br and NAME.gz next to each file of a folder that they make smaller.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const folder = process.argv.at(-1);
const best = { params: { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY } };
for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile() || /\.(br|gz|png|ico)$/.test(entry.name)) continue;
  const file = join(entry.parentPath ?? entry.path, entry.name);
  const content = readFileSync(file);
  const forms = { br: brotliCompressSync(content, best), gz: gzipSync(content, { level: 9 }) };
  for (const [extension, form] of Object.entries(forms)) {
    if (form.length < content.length) writeFileSync(`${file}.${extension}`, form);
  }
}
