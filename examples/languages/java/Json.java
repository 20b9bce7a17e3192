import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.stream.JsonReader;
import com.google.gson.stream.JsonToken;

import java.io.IOException;
import java.io.StringReader;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;

import static java.nio.charset.StandardCharsets.UTF_8;

/** JSON, by Gson. */
final class Json {
    private static final Gson GSON = new Gson();

    private Json() {}

    /** Reads one object and nothing behind it; what is no UTF-8 is no JSON. */
    static JsonObject object(byte[] data) throws IOException {
        try {
            String text = UTF_8.newDecoder().decode(ByteBuffer.wrap(data)).toString();
            JsonReader reader = new JsonReader(new StringReader(text));
            JsonElement read = GSON.getAdapter(JsonElement.class).read(reader);
            if (reader.peek() != JsonToken.END_DOCUMENT || !read.isJsonObject()) {
                throw new IOException("want one object");
            }
            return read.getAsJsonObject();
        } catch (CharacterCodingException | JsonParseException | IllegalStateException | NumberFormatException err) {
            throw new IOException(err.getMessage(), err);
        }
    }

    /** A member that is text; null: it is not. */
    static String string(JsonElement of, String member) {
        JsonElement is = of != null && of.isJsonObject() ? of.getAsJsonObject().get(member) : null;
        return is != null && is.isJsonPrimitive() && is.getAsJsonPrimitive().isString() ? is.getAsString() : null;
    }

    /** A member that is a number; null: it is not. */
    static BigDecimal number(JsonElement of, String member) {
        JsonElement is = of != null && of.isJsonObject() ? of.getAsJsonObject().get(member) : null;
        return is != null && is.isJsonPrimitive() && is.getAsJsonPrimitive().isNumber() ? is.getAsBigDecimal() : null;
    }

    static String text(Object value) {
        return GSON.toJson(value);
    }
}
