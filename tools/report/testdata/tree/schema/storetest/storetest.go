package storetest

const column = "start_at"
