// Keep the stream busy for `cycles` clock cycles.
KERNEL idle(Index cycles) {
  for (Index start = clock64(); clock64() - start < cycles;)
    ;
}
