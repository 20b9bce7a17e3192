package supervisor

import . "time"

func dot() {
	Sleep(Second) // breach: time.Sleep
	other{}.Sleep(1)
}
