const units = ['B', 'KB', 'MB', 'GB', 'TB', 'PB', 'EB'];

/** A size in bytes for people, such as `1.4 MB`. */
export function formatSize(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  const digits = unit === 0 || value >= 100 ? 0 : 1;
  return `${value.toFixed(digits)} ${units[unit]}`;
}

/** `1 file`, `2 files`. */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${n.toLocaleString('en')} ${n === 1 ? one : many}`;
}

/** How long ago a time was, in a few characters; the date where it was long ago. */
export function ago(time: Date, now: Date): string {
  const s = Math.max(0, Math.round((now.getTime() - time.getTime()) / 1000));
  if (s < 5) return 'now';
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ago`;
  if (s < 30 * 86400) return `${Math.floor(s / 86400)} d ago`;
  return time.toLocaleDateString('en-GB', { day: 'numeric', month: 'short', year: 'numeric' });
}
