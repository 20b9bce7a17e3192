package node

type request interface{ FormValue(name string) string }

func next(r request) string {
	return r.FormValue("next") // breach: FormValue reads uploads
}
