// Writes whole lines to the bridge from both threads: a lock they share keeps the lines apart.
import { writeSync } from "node:fs";

export function sayer(fd, lock) {
  const pause = new Int32Array(new SharedArrayBuffer(4));
  return (told) => {
    let data = Buffer.from(JSON.stringify(told) + "\n");
    while (Atomics.compareExchange(lock, 0, 0, 1) !== 0) Atomics.wait(lock, 0, 1);
    try {
      while (data.length > 0) {
        try {
          data = data.subarray(writeSync(fd, data));
        } catch (error) {
          if (error.code !== "EAGAIN") throw error;
          Atomics.wait(pause, 0, 0, 1);
        }
      }
    } finally {
      Atomics.store(lock, 0, 0);
      Atomics.notify(lock, 0, 1);
    }
  };
}
