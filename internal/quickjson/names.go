package quickjson

// eachName calls take with the name of each member of valid JSON, however deep, as it reads without escapes, until take
// reports false.
func eachName(data []byte, take func(name []byte) bool) {
	for i := 0; i < len(data); i++ {
		if data[i] != '"' {
			continue
		}
		text := data[i+1 : endOfText(data, i)]
		i += len(text) + 1
		for i+1 < len(data) && data[i+1] <= ' ' {
			i++
		}
		if i+1 < len(data) && data[i+1] == ':' && !take(plainName(text)) { // else it is a value
			return
		}
	}
}
