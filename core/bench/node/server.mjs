// What the durable rows of 'bridle bench' are measured against: a plain WebSocket server that stores
// each message in SQLite (WAL, synchronous=FULL) and echoes it after the commit. It checks, redacts
// and chains nothing.
//
// node server.mjs MODE DATABASE ADDON [MODULES]    MODE: tick, each, idle
//   tick: one transaction for what one turn of the event loop brought
//   each: one transaction a message
//   idle: nothing is stored
// Prints its port, and ends with standard input.
import { createRequire } from 'node:module';
import { createServer } from 'node:http';

const [mode, file, addon, modules] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { WebSocketServer } = require('ws');

let store = (socket, data) => socket.send(data, { binary: false });
if (mode !== 'idle') {
  const Database = require('better-sqlite3');
  const db = new Database(file, { nativeBinding: addon });
  db.pragma('journal_mode = WAL');
  db.pragma('synchronous = FULL');
  db.exec('CREATE TABLE events(seq INTEGER PRIMARY KEY, body TEXT NOT NULL)');
  const insert = db.prepare('INSERT INTO events(body) VALUES(?)');
  if (mode === 'each') {
    store = (socket, data) => {
      const body = data.toString();
      insert.run(body);
      socket.send(body);
    };
  } else {
    let waiting = [];
    const all = db.transaction((rows) => {
      for (const row of rows) insert.run(row.body);
    });
    store = (socket, data) => {
      if (waiting.length === 0) {
        setImmediate(() => {
          const rows = waiting;
          waiting = [];
          all(rows);
          for (const row of rows) row.socket.send(row.body);
        });
      }
      waiting.push({ socket, body: data.toString() });
    };
  }
}

const http = createServer();
const server = new WebSocketServer({ server: http, perMessageDeflate: false });
server.on('connection', (socket) => socket.on('message', (data) => store(socket, data)));
http.listen({ port: 0, host: '127.0.0.1', backlog: 4096 }, () => console.log(http.address().port));
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
