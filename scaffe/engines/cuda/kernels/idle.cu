// Keep the stream busy for so many of the processor's cycles.
KERNEL idle(Index cycles) {
  for (Index start = clock64(); clock64() - start < cycles;)
    ;
}
