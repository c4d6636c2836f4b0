import type { MockServer } from './mock.ts';

const analysis = `"""Totals per month from the orders of a quarter."""

import csv
from collections import defaultdict
from pathlib import Path


def monthly_totals(path: Path) -> dict[str, float]:
    """Sum the amounts of all orders by month, latest first."""
    totals: dict[str, float] = defaultdict(float)
    with path.open(newline="") as f:
        rows = list(csv.DictReader(f))
    rows.sort(key=lambda r: r["date"], reverse=True)
    for row in rows:
        totals[row["date"][:7]] += float(row["amount"])  # YYYY-MM
    return dict(totals)


if __name__ == "__main__":
    for month, total in monthly_totals(Path("orders.csv")).items():
        print(f"{month}  {total:12,.2f}")
`;

/** A picture of 2 by 2 pixels. */
const picture = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAYAAABytg0kAAAAFElEQVR4nGPgzj79HwgYGEAEiAMAXh0KeyE7cFkAAAAASUVORK5CYII=',
  'base64',
);

/** Gives the server what a member's workspace looks like after some work. */
export function fillServer(server: MockServer): void {
  const files: Record<string, string | Buffer> = {
    'me/README.md': '# My disk\n\nNotes and reports.\n',
    'me/profy/report/analysis.py': analysis,
    'me/profy/report/orders.csv': 'date,amount\n2026-10-01,12.50\n',
    'me/profy/report/old.csv': 'a,b\n1,2\n',
    'me/profy/report/chart.png': picture,
    'me/profy/report/data.bin': Buffer.from('00010203', 'hex'),
    'me/profy/site/package.json': '{\n  "name": "site",\n  "private": true\n}\n',
    'me/profy/site/src/main.ts': "console.log('hello');\n",
    'me/profy/site/src/very/deep/down/in/the/tree/leaf.txt': 'found\n',
    'me/odd/line\nbreak.txt': 'odd\n',
    'me/odd/caf\udce9.txt': 'latin\n',
    'me/odd/100% #1?.txt': 'escaped\n',
    'me/odd/txt\u202eexe.gpj': 'not a picture\n',
    'me/empty.txt': '',
    'me/shared/handbook.md': 'the same directory as shared, as in a machine\n',
    'shared/brand/colours.css': ':root { --brand: #0b6bcb; }\n',
    'shared/handbook.md': '# Handbook\n',
  };
  for (const [path, content] of Object.entries(files)) server.files.write(path, content, new Date(Date.now() - 5_400_000));
  server.files.link('me/latest', 'profy/report');
  const since = new Date(Date.now() - 240_000).toISOString();
  server.chats = [
    { id: 'report', title: 'Quarterly report', machine: { id: 'i7k2m9q4x1c8v5b3n6z0a', state: 'running', since, image: 'berth-machine:core', isolation: [] } },
    { id: 'site', title: 'Landing page', machine: { id: 'i0a9s8d7f6g5h4j3k2l1q', state: 'sleeping', since, reason: 'idle for 30 minutes' } },
    { id: 'scratch', machine: { id: 'iq1w2e3r4t5y6u7i8o9p0', state: 'waiting' } },
    { id: 'broken', title: 'Import of the old archive', machine: { id: 'iz1x2c3v4b5n6m7a8s9d0', state: 'failed', since, reason: 'no machine could be started: the image is missing' } },
  ];
  server.diffs.set('profy/report/analysis.py@c_81', {
    call: 'c_81',
    before_exists: true,
    after_exists: true,
    added: 3,
    removed: 2,
    hunks: [
      {
        a: 8, b: 8,
        lines: [
          { t: ' ', a: 8, b: 8, s: 'def monthly_totals(path: Path) -> dict[str, float]:' },
          { t: '-', a: 9, s: '    """Sum the amounts of all orders by month."""' },
          { t: '+', b: 9, s: '    """Sum the amounts of all orders by month, latest first."""' },
          { t: ' ', a: 10, b: 10, s: '    totals: dict[str, float] = defaultdict(float)' },
          { t: ' ', a: 11, b: 11, s: '    with path.open(newline="") as f:' },
          { t: '-', a: 12, s: '        rows = csv.DictReader(f)' },
          { t: '+', b: 12, s: '        rows = list(csv.DictReader(f))' },
          { t: '+', b: 13, s: '    rows.sort(key=lambda r: r["date"], reverse=True)' },
          { t: ' ', a: 13, b: 14, s: '    for row in rows:' },
        ],
      },
    ],
  });
}
