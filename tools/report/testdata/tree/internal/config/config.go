package config

type Config struct {
	A string `env:"A"`
	B string `name:"b" env:"B"`
	C string
}
