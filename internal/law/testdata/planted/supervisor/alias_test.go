package supervisor

import clock "time"

type other struct{}

func (other) Sleep(int) {}

func alias() {
	clock.Sleep(1) // breach: time.Sleep
	other{}.Sleep(1)
}
