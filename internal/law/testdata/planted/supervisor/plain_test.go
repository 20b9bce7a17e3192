package supervisor

import "time"

func wait() {
	time.Sleep(1)       // breach: time.Sleep
	defer time.Sleep(1) // breach: time.Sleep
	f := time.Sleep     // breach: time.Sleep
	f(time.Second)
}
