// Renders the OpenAPI document. Text only ever becomes text: nothing of the document is parsed as HTML.
'use strict';

const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

const resolve = (root, schema) => {
  const name = schema?.$ref?.split('/').pop();
  return name ? { name, ...root.components.schemas[name] } : schema ?? {};
};

/** A schema in a few words. */
const typeOf = (root, schema) => {
  const found = resolve(root, schema);
  if (found.name) return found.name;
  if (found.oneOf) return found.oneOf.map((part) => typeOf(root, part)).join(' or ');
  if (found.type === 'array') return `list of ${typeOf(root, found.items)}`;
  return [found.type ?? 'anything'].flat().join(' or ');
};

/** The fields of an object schema, one row each. */
const fields = (root, schema) => {
  const found = resolve(root, schema);
  const rows = Object.entries(found.properties ?? {}).map(([name, field]) => {
    const need = found.required?.includes(name) ? '' : ', optional';
    return [`${name}`, `${typeOf(root, field)}${need}. ${resolve(root, field).description ?? ''}`];
  });
  return rows.length ? list(rows) : element('p', { class: 'said' }, typeOf(root, schema));
};

const list = (rows) =>
  element('dl', {}, ...rows.flatMap(([term, text]) => [element('dt', {}, element('code', {}, term)), element('dd', {}, text)]));

const bodies = (root, title, content) =>
  Object.entries(content ?? {}).flatMap(([type, { schema }]) => [
    element('h3', {}, `${title} `, element('span', { class: 'said' }, `${typeOf(root, schema)} (${type})`)),
    fields(root, schema),
  ]);

const operation = (root, path, method, said) => {
  const facts = ['x-role', 'x-cli', 'x-audit', 'x-event']
    .filter((key) => said[key])
    .map((key) => [key.slice(2), key === 'x-cli' && !said[key].startsWith('none') ? `gpuaas ${said[key]}` : said[key]]);
  facts.push(['errors', (said['x-errors'] ?? []).join(', ')]);
  const parameters = (said.parameters ?? []).map((parameter) => [
    parameter.name,
    `${typeOf(root, parameter.schema)}, in ${parameter.in}${parameter.required ? '' : ', optional'}. ${parameter.description ?? ''}`,
  ]);
  const answers = Object.entries(said.responses)
    .filter(([status]) => status.startsWith('2'))
    .flatMap(([status, answer]) => bodies(root, `Response ${status}`, answer.content));
  const made = element('details', { id: said.operationId },
    element('summary', {}, element('code', { class: 'method' }, method), element('code', {}, path),
      element('span', { class: 'said' }, said.summary ?? '')),
    list(facts),
    ...(parameters.length ? [element('h3', {}, 'Parameters'), list(parameters)] : []),
    ...bodies(root, 'Body', said.requestBody?.content),
    ...answers);
  made.dataset.text = `${method} ${path} ${said.operationId} ${made.textContent}`.toLowerCase();
  return made;
};

const render = (root) => {
  const groups = new Map();
  for (const [path, item] of Object.entries(root.paths)) {
    for (const [method, said] of Object.entries(item)) {
      const tag = said.tags?.[0] ?? 'other';
      groups.set(tag, [...(groups.get(tag) ?? []), operation(root, path, method, said)]);
    }
  }
  const sections = [...groups].map(([tag, operations]) => element('section', {}, element('h2', {}, tag), ...operations));
  document.getElementById('operations').replaceChildren(...sections);
};

document.getElementById('find').addEventListener('input', ({ target }) => {
  const wanted = target.value.trim().toLowerCase();
  for (const section of document.querySelectorAll('section')) {
    const all = [...section.querySelectorAll('details')];
    for (const details of all) details.hidden = !details.dataset.text.includes(wanted);
    section.hidden = all.every((details) => details.hidden);
  }
});

fetch('/api/v1/openapi.json')
  .then((answer) => answer.json())
  .then(render)
  .catch((error) => document.getElementById('operations').replaceChildren(element('p', {}, `The document cannot be read: ${error}`)));
