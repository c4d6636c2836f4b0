import { Icon, type IconName } from '../ui/Icon.tsx';
import { useTheme, type Theme } from '../ui/theme.ts';

const looks: Record<Theme, { icon: IconName; word: string }> = {
  system: { icon: 'system', word: 'as the system' },
  light: { icon: 'sun', word: 'light' },
  dark: { icon: 'moon', word: 'dark' },
};

/** Goes through the colours: as the system, light, dark. */
export function ThemeButton() {
  const { theme, next } = useTheme();
  const label = `Colours: ${looks[theme].word}`;
  return (
    <button type="button" className="icon-button" onClick={next} aria-label={label} title={label}>
      <Icon name={looks[theme].icon} />
    </button>
  );
}
