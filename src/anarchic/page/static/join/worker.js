// Runs in a Web Worker, so that training does not hold up the page.

import { Outbox } from "./outbox.js";
import { Server } from "./server.js";
import { Visits } from "./visits.js";

const here = new URL(self.location.href);
const digits = new URL("digits", here);
const server = new Server(here.searchParams.get("api"));

// Messages that come before the database is open wait for it.
const visits = Outbox.open().then((outbox) => {
  return new Visits({ server, outbox, digits, tell: (message) => self.postMessage(message) });
});
let last = null;
self.onmessage = ({ data }) => {
  const told = Promise.all([visits, last]).then(([started]) => started.told(data));
  last = told.catch((error) => console.error(error)); // the next message comes after this one
};
visits
  .then((started) => started.run())
  .catch((error) => {
    const detail = `This browser cannot keep updates or work in the background (${error.message}).`;
    self.postMessage({ kind: "state", state: "stopped", detail });
  });
