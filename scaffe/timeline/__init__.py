"""Timeline: what each rank did when, written, read, drawn and advised on."""
