// Texts for a shell.

// A text as one word of a command, quoted if it has signs of the shell.
export const shellQuoted = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
