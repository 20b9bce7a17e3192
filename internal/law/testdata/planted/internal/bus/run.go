package bus

func run(f func()) { go f() }
