// Finished updates, in IndexedDB until the server has accepted or finally refused them.
//
// All tabs of a browser share it, so that what a closed tab left behind is sent by another. A tab
// holds an update for a while after it made it or tried to send it. If two tabs send it all the
// same, it counts once: its id and bytes are the same.

const HOLD_MS = 5_000; // later, another tab may send it

export class Outbox {
  constructor(database) {
    this.database = database;
    this.tab = crypto.getRandomValues(new Uint32Array(2)).join();
  }

  static async open(name = "anarchic-join") {
    const asked = indexedDB.open(name, 1);
    asked.onupgradeneeded = () => {
      const updates = asked.result.createObjectStore("updates", { keyPath: "id" });
      updates.createIndex("made", "made_ms");
    };
    return new Outbox(await done(asked));
  }

  /** Keep an update: {id, api, worker, token, body}. Returns when it is on disk. */
  async put(update) {
    const kept = this.#held({ ...update, made_ms: Date.now() });
    const turn = this.database.transaction("updates", "readwrite", { durability: "strict" });
    turn.objectStore("updates").put(kept);
    await ended(turn);
  }

  /** The oldest update that `mine` says may be sent and no other tab holds; null if there is none. */
  async take(mine) {
    const turn = this.database.transaction("updates", "readwrite");
    const cursors = turn.objectStore("updates").index("made").openCursor();
    let found = null;
    cursors.onsuccess = () => {
      const cursor = cursors.result;
      if (!cursor) return;
      const { held_by, held_until_ms } = cursor.value;
      // A hold that ends much later than one can is of a clock that was set back since.
      const left_ms = held_until_ms - Date.now();
      const free = left_ms < 0 || left_ms > 2 * HOLD_MS;
      if (mine(cursor.value) && (held_by === this.tab || free)) {
        found = cursor.value;
        cursor.update(this.#held(found));
      } else {
        cursor.continue();
      }
    };
    await ended(turn);
    return found;
  }

  async remove(update) {
    const turn = this.database.transaction("updates", "readwrite");
    turn.objectStore("updates").delete(update.id);
    await ended(turn);
  }

  #held(update) {
    return { ...update, held_by: this.tab, held_until_ms: Date.now() + HOLD_MS };
  }

  /** The number of updates that wait. */
  async count(mine) {
    const turn = this.database.transaction("updates", "readonly");
    const cursors = turn.objectStore("updates").openCursor();
    let count = 0;
    cursors.onsuccess = () => {
      if (!cursors.result) return;
      count += mine(cursors.result.value) ? 1 : 0;
      cursors.result.continue();
    };
    await ended(turn);
    return count;
  }
}

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function ended(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    // After an error comes an abort, and only then is the reason known.
    transaction.onabort = () => reject(transaction.error ?? new Error("The database was closed."));
  });
}
