export default {
  compilerOptions: {
    // Components use runes only.
    runes: true,
  },
};
