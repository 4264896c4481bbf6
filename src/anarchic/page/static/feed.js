// The stream of pictures: fetched, so that the token is in a header and never in an address.

const LONGEST_S = 10;

export function events(text) {
  const blocks = text.split("\n\n");
  const rest = blocks.pop();
  const found = blocks.map((block) => block.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join(""));
  return [found.filter(Boolean).map((data) => JSON.parse(data)), rest];
}

// Calls `picture` with each event and `link` with what became of the connection, for ever.
export async function follow(url, headers, { picture, link }) {
  let pause = 0.5;
  for (;;) {
    const ended = await once(url, headers, (parts) => {
      pause = 0.5;
      picture(parts);
    }, link);
    if (ended.stop) return ended;
    link("down", ended.told);
    await new Promise((resolve) => setTimeout(resolve, 1000 * pause));
    pause = Math.min(LONGEST_S, 1.6 * pause);
  }
}

async function once(url, headers, picture, link) {
  const hangUp = new AbortController();
  let heard = performance.now();
  const watch = setInterval(() => performance.now() - heard > 45000 && hangUp.abort(), 5000);
  try {
    const answer = await fetch(url, { headers: headers(), signal: hangUp.signal, cache: "no-store", credentials: "same-origin" });
    if (!answer.ok) return await refused(answer);
    link("up");
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return { told: "The server has ended the stream." };
      heard = performance.now();
      performance.mark("read");
      const [found, rest] = events(text + value);
      text = rest;
      found.forEach(picture);
      performance.measure("anarchic read", "read");
    }
  } catch {
    return { told: "The server does not answer." };
  } finally {
    clearInterval(watch);
  }
}

async function refused(answer) {
  const told = await answer.json().catch(() => ({}));
  const words = told.message ? `${told.message} ${told.remedy ?? ""}` : `The server answered ${answer.status}.`;
  return { stop: [401, 403, 404, 421].includes(answer.status), status: answer.status, told: words };
}
