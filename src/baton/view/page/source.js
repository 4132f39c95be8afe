// Where answers come from: the server on this machine, or, in an exported file, the file itself.

const inside = document.getElementById("answers");
const kept = inside ? JSON.parse(inside.textContent) : null;
let token = null;

export const exported = kept !== null;

export async function ask(name, query = {}) {
  if (kept) {
    const found = kept[query.at === undefined ? name : `${name} ${query.at}`];
    if (!found) throw new Error("This file does not hold that.");
    if (found.error) throw new Error(found.error);
    return found;
  }
  const found = await reply(fetch(`api/${name}?${new URLSearchParams(query)}`));
  if (name === "setup") token = found.token;
  return found;
}

export async function post(name, query, body) {
  return reply(fetch(`api/${name}?${new URLSearchParams(query)}`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-baton-token": token ?? "" },
    body: JSON.stringify(body),
  }));
}

async function reply(request) {
  let found;
  try {
    found = await (await request).json();
  } catch {
    throw new Error("The viewer does not answer. Is `baton view` still running?");
  }
  if (found.error) throw new Error(found.error);
  return found;
}

// A file of the server's, kept where the browser keeps files.
export function download(name, query) {
  const link = document.createElement("a");
  link.href = `api/${name}?${new URLSearchParams(query)}`;
  link.download = "";
  link.click();
}
