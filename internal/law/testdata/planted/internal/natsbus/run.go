package natsbus

func run(f func()) { go f() }
